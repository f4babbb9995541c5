# Workers, and who may connect to them.

mock_provider "aws" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  name    = "kiwi"
  network = { vpc_id = "vpc-0123456789abcdef0", subnet_ids = { "eu-central-1a" = "subnet-aaaa", "eu-central-1b" = "subnet-bbbb" } }
  port    = 7200
  gateway = { uri = "grpc+tls://10.71.0.9:7100", port = 7100, security_group_id = "sg-gateway" }
  workers = {
    "1" = { zone = "eu-central-1a", instance_type = "r7i.2xlarge", volume = { size_gib = 500, iops = 6000, throughput_mib = 500 } }
    "2" = { zone = "eu-central-1b", instance_type = "r7i.2xlarge", volume = { size_gib = 500, iops = 6000, throughput_mib = 500 } }
  }
  settings               = {}
  objects                = []
  operations             = { port = 7190, token = false, cidr_blocks = [], security_group_ids = ["sg-prometheus"] }
  egress                 = { HTTPS = { cidr_ipv4 = "0.0.0.0/0", port = 443 } }
  image_id               = "ami-0123456789abcdef0"
  kms_key_arn            = null
  termination_protection = false
  tags                   = {}

  secrets = {
    region    = "eu-central-1"
    variables = { VOLARY_SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/secret-AbCdEf" }
    files     = { "node.key" = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/key-AbCdEf" }
  }
  bootstrap = {
    tls         = { node_name = "kiwi.internal", client_authorities = false, require_client_certificates = false }
    environment = { AWS_REGION = "eu-central-1" }
    package = {
      url    = "https://packages.example/volary_0.1.0_amd64.deb"
      sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    }
  }
}

run "only_the_gateway_other_workers_and_prometheus_reach_a_worker" {
  command = plan

  module {
    source = "./modules/worker"
  }

  assert {
    condition = alltrue([
      for rule in concat(
        [aws_vpc_security_group_ingress_rule.gateway, aws_vpc_security_group_ingress_rule.workers],
        values(aws_vpc_security_group_ingress_rule.scrapers), aws_vpc_security_group_ingress_rule.scraper_groups,
      ) :
      rule.cidr_ipv4 == null && rule.cidr_ipv6 == null && rule.ip_protocol == "tcp" && rule.from_port == rule.to_port &&
      contains([7200, 7190], rule.to_port)
    ])
    error_message = "A port is open that should not be."
  }

  assert {
    condition = (
      aws_vpc_security_group_ingress_rule.gateway.referenced_security_group_id == "sg-gateway" &&
      aws_vpc_security_group_ingress_rule.workers.referenced_security_group_id == aws_security_group.worker.id &&
      aws_vpc_security_group_ingress_rule.scraper_groups[0].referenced_security_group_id == "sg-prometheus"
    )
    error_message = "Others than those that must can connect."
  }
}

run "each_worker_has_a_machine_and_a_volume" {
  command = plan

  module {
    source = "./modules/worker"
  }

  assert {
    condition     = join(",", keys(output.instance_ids)) == "1,2" && join(",", keys(output.volume_ids)) == "1,2"
    error_message = "A worker lacks its machine or its volume."
  }
}
