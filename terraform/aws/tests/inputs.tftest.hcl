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

run "a_network_without_zones_and_without_a_vpc_is_refused" {
  command = plan

  variables {
    network = {}
  }

  expect_failures = [var.network]
}

run "a_ninth_zone_is_refused" {
  command = plan

  variables {
    network = { zones = [for letter in split("", "abcdefghi") : "eu-central-1${letter}"] }
  }

  expect_failures = [var.network]
}

run "an_unknown_kind_of_nat_is_refused" {
  command = plan

  variables {
    network = { zones = ["eu-central-1a"], nat = "two" }
  }

  expect_failures = [var.network]
}

run "the_text_of_a_certificate_is_refused" {
  command = plan

  variables {
    tls = {
      node_name       = "kiwi.internal"
      authorities_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/authority-AbCdEf"
      certificate_arn = "-----BEGIN CERTIFICATE-----"
      key_arn         = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/key-AbCdEf"
    }
  }

  expect_failures = [var.tls]
}

run "a_small_volume_of_the_gateway_is_refused" {
  command = plan

  variables {
    gateway = { volume = { size_gib = 10 } }
  }

  expect_failures = [var.gateway]
}

run "a_small_volume_of_a_worker_is_refused" {
  command = plan

  variables {
    worker = { volume = { size_gib = 10 } }
  }

  expect_failures = [var.worker]
}

run "a_cluster_without_workers_is_refused" {
  command = plan

  variables {
    worker = { members = {} }
  }

  expect_failures = [var.worker]
}

run "a_name_of_a_worker_with_a_space_is_refused" {
  command = plan

  variables {
    worker = { members = { "first one" = { zone = "eu-central-1a" } } }
  }

  expect_failures = [var.worker]
}

run "settings_of_the_gateway_are_refused_for_workers" {
  command = plan

  variables {
    worker = { settings = { "gateway.query.timeout" = "10m" } }
  }

  expect_failures = [var.worker]
}

run "a_place_to_read_without_a_slash_is_refused" {
  command = plan

  variables {
    storage = { read = ["s3://flights"] }
  }

  expect_failures = [var.storage]
}
