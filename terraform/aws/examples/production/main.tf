# A cluster for many users: a name of its own, client certificates, a key of its own, six workers in three zones, metrics,
# traces and snapshots.

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

  default_tags {
    tags = { team = "analytics" }
  }
}

module "volary" {
  source = "../.."

  name       = "kiwi"
  network    = { zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"], nat = "one_per_zone" }
  secret_arn = var.secrets.cluster
  tls = {
    node_name                   = "volary.internal"
    authorities_arn             = var.secrets.authority
    certificate_arn             = var.secrets.certificate
    key_arn                     = var.secrets.key
    worker                      = { certificate_arn = var.secrets.worker_certificate, key_arn = var.secrets.worker_key }
    require_client_certificates = true
  }
  admin_password_arn = var.secrets.admin_password
  package            = var.package
  image              = { id = var.image_id }
  kms_key_arn        = var.kms_key_arn

  gateway = {
    instance_type = "m7i.2xlarge"
    volume        = { size_gib = 200, iops = 6000, throughput_mib = 250 }
    settings = {
      "gateway.query.timeout"              = "20m"
      "gateway.query.max_running_per_user" = 64
    }
  }
  worker = {
    # A name is never used again for a worker in another zone, because the volume stays in its zone.
    members = {
      a1 = { zone = "eu-central-1a" }, a2 = { zone = "eu-central-1a" }
      b1 = { zone = "eu-central-1b" }, b2 = { zone = "eu-central-1b" }
      c1 = { zone = "eu-central-1c" }, c2 = { zone = "eu-central-1c" }
    }
    instance_type = "r7i.4xlarge"
    volume        = { size_gib = 2000, iops = 12000, throughput_mib = 750 }
  }

  clients       = { cidr_blocks = ["10.0.0.0/8"] }
  load_balancer = { dns = var.dns }
  operations    = { token_arn = var.secrets.metrics_token, cidr_blocks = ["10.20.0.0/24"] }
  traces        = { endpoint = "http://10.20.0.17:4317", sample = 0.05 }
  egress = {
    "HTTPS: AWS, the package, files to load" = { cidr_ipv4 = "0.0.0.0/0", port = 443 }
    "The collector of traces"                = { cidr_ipv4 = "10.20.0.17/32", port = 4317 }
  }
  storage = { expire_after_days = 90 }
  backup  = { kept = 14 }
}
