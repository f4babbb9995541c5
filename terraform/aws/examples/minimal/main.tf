# The smallest cluster: a new VPC in two zones, a gateway and two workers. Whoever is inside of the VPC may connect.

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
  network    = { zones = ["eu-central-1a", "eu-central-1b"] }
  secret_arn = var.secrets.cluster
  tls = {
    node_name       = "volary.internal"
    authorities_arn = var.secrets.authority
    certificate_arn = var.secrets.certificate
    key_arn         = var.secrets.key
  }
  admin_password_arn = var.secrets.admin_password
  package            = var.package

  gateway = {
    instance_type = "m7i.large"
    volume        = { size_gib = 40 }
  }
  worker = {
    members       = { "1" = { zone = "eu-central-1a" }, "2" = { zone = "eu-central-1b" } }
    instance_type = "r7i.large"
    volume        = { size_gib = 100, iops = 3000, throughput_mib = 125 }
  }
  clients = { cidr_blocks = ["10.71.0.0/16"] }

  # A cluster to try out is destroyed again.
  load_balancer = { deletion_protection = false }
  backup        = { enabled = false }
}
