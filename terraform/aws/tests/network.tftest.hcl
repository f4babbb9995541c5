# The VPC that is made if none is given.

mock_provider "aws" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  name       = "kiwi"
  cidr_block = "10.71.0.0/16"
  zones      = ["eu-central-1a", "eu-central-1b"]
  nat        = "one"
  region     = "eu-central-1"
}

run "no_machine_gets_a_public_address" {
  command = plan

  module {
    source = "./modules/network"
  }

  assert {
    condition     = alltrue([for subnet in aws_subnet.public : !subnet.map_public_ip_on_launch])
    error_message = "Machines in public subnets get public addresses."
  }
}

run "no_two_subnets_overlap" {
  command = plan

  module {
    source = "./modules/network"
  }

  assert {
    condition = length(distinct(concat(
      [for subnet in aws_subnet.private : subnet.cidr_block], [for subnet in aws_subnet.public : subnet.cidr_block]
    ))) == 4
    error_message = "Subnets have the same addresses."
  }
}

run "private_subnets_leave_through_one_nat_gateway" {
  command = plan

  module {
    source = "./modules/network"
  }

  assert {
    condition     = join(",", keys(aws_nat_gateway.this)) == "eu-central-1a" && length(aws_route.nat) == 2
    error_message = "There is not one NAT gateway for all zones."
  }
}

run "each_zone_may_have_a_nat_gateway_of_its_own" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    nat = "one_per_zone"
  }

  assert {
    condition     = join(",", keys(aws_nat_gateway.this)) == "eu-central-1a,eu-central-1b"
    error_message = "A zone has no NAT gateway."
  }
}

run "without_a_nat_gateway_machines_reach_only_the_endpoints" {
  command = plan

  module {
    source = "./modules/network"
  }

  variables {
    nat = "none"
  }

  assert {
    condition     = length(aws_nat_gateway.this) == 0 && length(aws_route.nat) == 0
    error_message = "There is a way to the internet."
  }

  assert {
    condition = toset(concat([aws_vpc_endpoint.s3.service_name], [for endpoint in aws_vpc_endpoint.interface : endpoint.service_name])) == toset([
      "com.amazonaws.eu-central-1.s3", "com.amazonaws.eu-central-1.ssm", "com.amazonaws.eu-central-1.ssmmessages",
      "com.amazonaws.eu-central-1.ec2messages", "com.amazonaws.eu-central-1.secretsmanager",
    ])
    error_message = "A machine cannot boot: an endpoint is missing."
  }
}

run "the_endpoints_answer_only_the_vpc" {
  command = plan

  module {
    source = "./modules/network"
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.endpoints.cidr_ipv4 == "10.71.0.0/16" && aws_vpc_security_group_ingress_rule.endpoints.to_port == 443
    error_message = "The endpoints are open to others."
  }
}
