# What a machine is given.

variables {
  role      = "gateway"
  node      = { listen = "0.0.0.0:7100" }
  tls       = { node_name = "kiwi.internal" }
  volume_id = "vol-0123456789abcdef0"
  secrets = {
    region    = "eu-central-1"
    variables = { VOLARY_SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/secret-AbCdEf" }
    files     = { "node.key" = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/key-AbCdEf" }
  }
  package = {
    url    = "s3://packages/volary-0.1.0-x86_64.tar.gz"
    sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
  }
}

run "a_gateway_is_told_nothing_of_workers" {
  module {
    source = "./modules/bootstrap"
  }

  assert {
    condition     = !can(regex("(?m)^worker\\.", output.settings)) && strcontains(output.settings, "gateway.listen = \"0.0.0.0:7100\"\n")
    error_message = "The settings of the gateway are not the gateway's."
  }
}

run "settings_of_all_types_are_written_as_toml" {
  module {
    source = "./modules/bootstrap"
  }

  variables {
    settings = {
      "gateway.query.max_running"        = 12
      "gateway.query.timeout"            = "10m"
      "gateway.load.allowed_roots"       = ["s3://kiwi/", "/srv/\"data\""]
      "gateway.gather.retry_for"         = null
      "gateway.security.allow_anonymous" = true
    }
  }

  assert {
    condition = strcontains(output.settings, <<-EOT
      gateway.load.allowed_roots = ["s3://kiwi/","/srv/\"data\""]
      gateway.query.max_running = 12
      gateway.query.timeout = "10m"
      gateway.security.allow_anonymous = true
    EOT
    )
    error_message = "The settings are not TOML."
  }

  assert {
    condition     = !strcontains(output.settings, "retry_for")
    error_message = "A setting that is null is written."
  }
}

run "what_the_module_decides_cannot_be_set" {
  command = plan

  module {
    source = "./modules/bootstrap"
  }

  variables {
    settings = { "gateway.data_dir" = "/tmp" }
  }

  expect_failures = [var.settings]
}

run "client_certificates_may_be_required" {
  module {
    source = "./modules/bootstrap"
  }

  variables {
    tls = { node_name = "kiwi.internal", client_authorities = true, require_client_certificates = true }
  }

  assert {
    condition = (
      strcontains(output.settings, "gateway.tls.require_client_certificates = true\n") &&
      strcontains(output.settings, "gateway.tls.client_authorities = \"/etc/volary/tls/client-authorities.pem\"\n")
    )
    error_message = "Clients without certificates are served."
  }
}

run "secrets_are_fetched_by_the_machine" {
  module {
    source = "./modules/bootstrap"
  }

  assert {
    condition = strcontains(
      output.files["/etc/volary/bootstrap.conf"].content,
      "SECRET_VARIABLES='VOLARY_SECRET=arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/secret-AbCdEf'\n"
    )
    error_message = "The machine does not know where its secret is."
  }
}

run "a_secret_among_the_settings_is_refused" {
  command = plan

  module {
    source = "./modules/bootstrap"
  }

  variables {
    settings = { "gateway.secret" = "an open secret of this cluster" }
  }

  expect_failures = [var.settings]
}

run "a_key_that_the_product_does_not_know_is_refused" {
  command = plan

  module {
    source = "./modules/bootstrap"
  }

  variables {
    settings = { "gateway.query.time_out" = "10m" }
  }

  expect_failures = [var.settings]
}

run "user_data_over_16_kib_is_refused" {
  command = plan

  module {
    source = "./modules/bootstrap"
  }

  variables {
    settings = { "gateway.load.allowed_roots" = [for number in range(400) : "s3://flights/partition-${number}/"] }
  }

  expect_failures = [output.user_data]
}

run "a_package_without_a_checksum_is_refused" {
  command = plan

  module {
    source = "./modules/bootstrap"
  }

  variables {
    package = { url = "https://packages.example/volary.deb", sha256 = "" }
  }

  expect_failures = [var.package]
}

run "a_worker_without_an_address_is_refused" {
  command = plan

  module {
    source = "./modules/bootstrap"
  }

  variables {
    role = "worker"
  }

  expect_failures = [var.node]
}
