# A cluster in a VPC that exists, for clients of one security group and of the company's network.

terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.25"
    }
  }
}

provider "aws" {
  region = "eu-central-1"
}

module "volary" {
  source = "../.."

  name       = "kiwi"
  network    = { existing = var.network }
  secret_arn = var.secrets.cluster
  tls = {
    node_name       = "volary.internal"
    authorities_arn = var.secrets.authority
    certificate_arn = var.secrets.certificate
    key_arn         = var.secrets.key
  }
  admin_password_arn = var.secrets.admin_password
  package            = var.package

  clients = {
    cidr_blocks        = ["10.0.0.0/8"]
    security_group_ids = var.client_security_group_ids
  }
  storage = {
    bucket = false
    read   = ["s3://flights-of-the-company/parquet/"]
  }
}
