# The gateway, its load balancer and who may connect.

mock_provider "aws" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  name                   = "kiwi"
  network                = { vpc_id = "vpc-0123456789abcdef0", subnet_ids = { "eu-central-1a" = "subnet-aaaa" } }
  port                   = 7100
  worker_port            = 7200
  gateway                = { zone = "eu-central-1a", instance_type = "m7i.xlarge", volume = { size_gib = 100, iops = 3000, throughput_mib = 125 } }
  settings               = { "gateway.query.timeout" = "10m" }
  objects                = []
  load_balancer          = { internal = true, subnet_ids = ["subnet-aaaa", "subnet-bbbb"], deletion_protection = true }
  clients                = { cidr_blocks = ["10.0.0.0/8"], security_group_ids = ["sg-clients"] }
  operations             = { port = 7190, token = false, cidr_blocks = ["10.9.0.0/16"], security_group_ids = [] }
  egress                 = { HTTPS = { cidr_ipv4 = "0.0.0.0/0", port = 443 } }
  image_id               = "ami-0123456789abcdef0"
  kms_key_arn            = null
  termination_protection = false
  tags                   = {}

  worker_security_group_id = "sg-workers"
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

run "only_known_clients_reach_the_load_balancer" {
  command = plan

  module {
    source = "./modules/gateway"
  }

  assert {
    condition = alltrue([
      for rule in concat(
        values(aws_vpc_security_group_ingress_rule.clients), values(aws_vpc_security_group_ingress_rule.scrapers),
        aws_vpc_security_group_ingress_rule.client_groups, aws_vpc_security_group_ingress_rule.scraper_groups,
        values(aws_vpc_security_group_ingress_rule.load_balancer), [aws_vpc_security_group_ingress_rule.workers],
      ) :
      rule.cidr_ipv4 != "0.0.0.0/0" && rule.cidr_ipv6 == null && rule.ip_protocol == "tcp" && rule.from_port == rule.to_port &&
      contains([7100, 7190], rule.to_port)
    ])
    error_message = "A port is open that should not be."
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.clients["10.0.0.0/8"].cidr_ipv4 == "10.0.0.0/8" && aws_vpc_security_group_ingress_rule.client_groups[0].referenced_security_group_id == "sg-clients"
    error_message = "The clients cannot connect."
  }
}

run "tls_and_http2_pass_the_load_balancer" {
  command = plan

  module {
    source = "./modules/gateway"
  }

  assert {
    condition     = aws_lb_listener.gateway.protocol == "TCP" && aws_lb_target_group.gateway.protocol == "TCP"
    error_message = "The load balancer ends TLS."
  }

  assert {
    condition     = aws_lb_listener.gateway.tcp_idle_timeout_seconds >= 3600
    error_message = "The load balancer ends connections of clients that wait for a query."
  }
}

run "the_gateway_sees_the_addresses_of_its_clients" {
  command = plan

  module {
    source = "./modules/gateway"
  }

  assert {
    condition     = tobool(aws_lb_target_group.gateway.preserve_client_ip)
    error_message = "All failed logins seem to come from the load balancer."
  }
}

run "running_statements_end_before_the_gateway_is_left_out" {
  command = plan

  module {
    source = "./modules/gateway"
  }

  assert {
    condition     = tonumber(aws_lb_target_group.gateway.deregistration_delay) >= 20
    error_message = "Connections are cut before the gateway has ended its statements."
  }
}

run "the_load_balancer_asks_whether_the_gateway_is_ready" {
  command = plan

  module {
    source = "./modules/gateway"
  }

  assert {
    condition = (
      aws_lb_target_group.gateway.health_check[0].protocol == "HTTPS" && aws_lb_target_group.gateway.health_check[0].path == "/readyz" &&
      aws_lb_target_group.gateway.health_check[0].port == "7190"
    )
    error_message = "The load balancer does not know whether the gateway is ready."
  }
}

run "without_operations_the_load_balancer_asks_whether_the_gateway_listens" {
  command = plan

  module {
    source = "./modules/gateway"
  }

  variables {
    operations = null
  }

  assert {
    condition     = aws_lb_target_group.gateway.health_check[0].protocol == "TCP" && aws_lb_target_group.gateway.health_check[0].port == "7100"
    error_message = "The load balancer asks a port that nobody listens on."
  }

  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.scrapers) == 0
    error_message = "A port is open that nobody listens on."
  }
}
