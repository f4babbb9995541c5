# What the cluster is, if only the required variables are given.

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

run "three_workers_are_in_turn_in_the_zones" {
  command = plan

  assert {
    condition     = output.zones.workers == { "1" = "eu-central-1a", "2" = "eu-central-1b", "3" = "eu-central-1a" }
    error_message = "The workers are not spread over the zones."
  }
}

run "each_node_has_a_machine_and_a_volume_of_its_own" {
  command = plan

  assert {
    condition     = join(",", keys(output.instance_ids)) == "1,2,3,gateway" && join(",", keys(output.volume_ids)) == "1,2,3,gateway"
    error_message = "There is not one machine and one volume for each node."
  }
}

run "clients_connect_over_tls_to_the_load_balancer" {
  command = plan

  assert {
    condition     = output.endpoint == "grpc+tls://kiwi-0123456789abcdef.elb.eu-central-1.amazonaws.com:7100"
    error_message = "The endpoint is not the load balancer's."
  }

  assert {
    condition     = strcontains(output.python, output.endpoint)
    error_message = "The snippet of Python connects elsewhere."
  }
}

run "a_record_gives_the_gateway_the_name_of_its_certificate" {
  command = plan

  variables {
    load_balancer = { dns = { zone_id = "Z0123456789XYZ", name = "kiwi.example.org" } }
  }

  assert {
    condition     = output.endpoint == "grpc+tls://kiwi.example.org:7100" && aws_route53_record.gateway[0].name == "kiwi.example.org"
    error_message = "Clients do not use the name."
  }
}

run "workers_stay_where_they_are_when_one_is_added" {
  command = plan

  variables {
    network = { zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"] }
    worker = {
      members = {
        "1" = { zone = "eu-central-1a" }
        "2" = { zone = "eu-central-1b" }
        "3" = { zone = "eu-central-1a" }
        "4" = { zone = "eu-central-1c" }
      }
    }
  }

  assert {
    condition     = output.zones.workers == { "1" = "eu-central-1a", "2" = "eu-central-1b", "3" = "eu-central-1a", "4" = "eu-central-1c" }
    error_message = "The workers are not where they were."
  }
}

run "all_data_volumes_have_snapshots_each_day" {
  command = plan

  assert {
    condition     = length(module.backup) == 1
    error_message = "There are no snapshots."
  }
}

run "the_bucket_of_files_to_load_may_be_left_out" {
  command = plan

  variables {
    storage = { bucket = false, read = ["s3://flights/parquet/"] }
  }

  assert {
    condition     = output.bucket == null
    error_message = "A bucket was made."
  }
}
