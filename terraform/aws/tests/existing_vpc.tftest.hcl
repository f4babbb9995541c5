# A cluster in a VPC that exists.

mock_provider "aws" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  name = "kiwi"
  network = {
    existing = {
      vpc_id     = "vpc-0123456789abcdef0"
      subnet_ids = { "eu-central-1b" = "subnet-bbbb", "eu-central-1a" = "subnet-aaaa" }
    }
  }
  secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/secret-AbCdEf"
  tls = {
    node_name       = "kiwi.internal"
    authorities_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/authority-AbCdEf"
    certificate_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/node-AbCdEf"
    key_arn         = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/key-AbCdEf"
  }
  package = {
    url    = "https://packages.example/volary_0.1.0_amd64.deb"
    sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
  }
}

run "no_vpc_is_made" {
  command = plan

  assert {
    condition     = length(module.network) == 0
    error_message = "A VPC is made beside the one that exists."
  }
}

run "nodes_are_in_the_zones_of_the_subnets" {
  command = plan

  assert {
    condition     = output.zones.gateway == "eu-central-1a" && distinct(values(output.zones.workers)) == tolist(["eu-central-1a", "eu-central-1b"])
    error_message = "The nodes are elsewhere."
  }
}
