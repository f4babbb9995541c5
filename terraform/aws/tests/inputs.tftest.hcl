# What is refused, each before anything is made.

mock_provider "aws" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  name       = "kiwi"
  network    = { zones = ["eu-central-1a", "eu-central-1b"] }
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

run "a_second_gateway_is_refused" {
  command = plan

  variables {
    gateway = { count = 2 }
  }

  expect_failures = [var.gateway]
}

run "a_long_name_is_refused" {
  command = plan

  variables {
    name = "a-name-of-twenty-one-c"
  }

  expect_failures = [var.name]
}

run "a_new_vpc_beside_an_existing_one_is_refused" {
  command = plan

  variables {
    network = {
      zones    = ["eu-central-1a"]
      existing = { vpc_id = "vpc-0123456789abcdef0", subnet_ids = { "eu-central-1a" = "subnet-aaaa" } }
    }
  }

  expect_failures = [var.network]
}

run "clients_from_everywhere_are_refused" {
  command = plan

  variables {
    clients = { cidr_blocks = ["0.0.0.0/0"] }
  }

  expect_failures = [var.clients]
}

run "metrics_for_everybody_are_refused" {
  command = plan

  variables {
    operations = { cidr_blocks = ["0.0.0.0/0"] }
  }

  expect_failures = [var.operations]
}

run "the_text_of_a_secret_is_refused" {
  command = plan

  variables {
    secret_arn = "an open secret of this cluster"
  }

  expect_failures = [var.secret_arn]
}

run "settings_of_the_worker_are_refused_for_the_gateway" {
  command = plan

  variables {
    gateway = { settings = { "worker.execution.max_running" = 12 } }
  }

  expect_failures = [var.gateway]
}

run "a_public_load_balancer_in_private_subnets_is_refused" {
  command = plan

  variables {
    load_balancer = { internal = false }
  }

  expect_failures = [var.load_balancer]
}

run "a_share_of_traces_above_one_is_refused" {
  command = plan

  variables {
    traces = { endpoint = "http://10.0.0.9:4317", sample = 7 }
  }

  expect_failures = [var.traces]
}
