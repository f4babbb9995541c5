# A machine with an identity.

mock_provider "aws" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  name               = "kiwi-worker-1"
  subnet_id          = "subnet-aaaa"
  zone               = "eu-central-1a"
  security_group_ids = ["sg-0123456789abcdef0"]
  instance_profile   = "kiwi-worker"
  instance_type      = "r7i.2xlarge"
  image_id           = "ami-0123456789abcdef0"
  volume             = { size_gib = 500, iops = 6000, throughput_mib = 500 }
  bootstrap = {
    role        = "worker"
    port        = 7200
    gateway     = "grpc+tls://10.71.0.9:7100"
    tls         = { node_name = "kiwi.internal", client_authorities = false, require_client_certificates = false }
    operations  = { listen = "0.0.0.0:7190", token = true }
    settings    = { "worker.execution.max_running" = 12 }
    environment = { AWS_REGION = "eu-central-1" }
    secrets = {
      region    = "eu-central-1"
      variables = { VOLARY_SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/secret-AbCdEf" }
      files     = { "node.key" = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/key-AbCdEf" }
    }
    package = {
      url    = "https://packages.example/volary_0.1.0_amd64.deb"
      sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    }
  }
}

run "volumes_are_encrypted" {
  command = plan

  module {
    source = "./modules/node"
  }

  assert {
    condition     = aws_ebs_volume.data.encrypted
    error_message = "The data volume is not encrypted."
  }

  assert {
    condition     = aws_instance.node.root_block_device[0].encrypted
    error_message = "The root volume, which has the keys of the certificates, is not encrypted."
  }
}

run "credentials_are_given_only_to_those_who_have_a_session_with_the_metadata_service" {
  command = plan

  module {
    source = "./modules/node"
  }

  assert {
    condition     = aws_instance.node.metadata_options[0].http_tokens == "required" && aws_instance.node.metadata_options[0].http_put_response_hop_limit == 1
    error_message = "The machine answers IMDSv1."
  }
}

run "the_address_and_the_volume_are_not_parts_of_the_machine" {
  command = plan

  module {
    source = "./modules/node"
  }

  assert {
    condition     = aws_instance.node.primary_network_interface[0].network_interface_id == aws_network_interface.node.id
    error_message = "The address ends with the machine."
  }

  assert {
    condition     = aws_volume_attachment.data.volume_id == aws_ebs_volume.data.id && aws_volume_attachment.data.stop_instance_before_detaching
    error_message = "The volume is not attached, or is taken from a machine that runs."
  }

  assert {
    condition     = aws_ebs_volume.data.final_snapshot
    error_message = "The rows are lost when the cluster is destroyed."
  }
}

run "the_user_data_has_what_the_machine_needs" {
  command = plan

  module {
    source = "./modules/node"
  }

  assert {
    condition     = startswith(base64decode(aws_instance.node.user_data_base64), "#cloud-config\n")
    error_message = "cloud-init does not know the user data."
  }

  assert {
    condition = {
      for file in yamldecode(base64decode(aws_instance.node.user_data_base64)).write_files : file.path => file.permissions
      } == {
      "/etc/systemd/system/volary-bootstrap.service" = "0644"
      "/etc/systemd/system/volary-worker.service"    = "0644"
      "/etc/volary/bootstrap.conf"                   = "0644"
      "/etc/volary/worker.env.in"                    = "0644"
      "/etc/volary/worker.toml"                      = "0644"
      "/usr/local/sbin/volary-bootstrap"             = "0755"
    }
    error_message = "The user data writes other files."
  }

  assert {
    condition = alltrue([
      for line in [
        "operations.token_file = \"/etc/volary/tls/operations-token\"",
        "worker.advertise = \"10.71.0.10:7200\"",
        "worker.execution.max_running = 12",
        "worker.gateway = \"grpc+tls://10.71.0.9:7100\"",
        "worker.tls.node_name = \"kiwi.internal\"",
        "worker.zone = \"eu-central-1a\"",
      ] :
      contains(split("\n", one([
        for file in yamldecode(base64decode(aws_instance.node.user_data_base64)).write_files : file.content
        if file.path == "/etc/volary/worker.toml"
      ])), line)
    ])
    error_message = "The settings of the worker lack a line."
  }

  assert {
    condition     = strcontains(base64decode(aws_instance.node.user_data_base64), "nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0")
    error_message = "The machine looks for another volume."
  }
}

run "the_user_data_fits" {
  command = plan

  module {
    source = "./modules/node"
  }

  assert {
    condition     = length(aws_instance.node.user_data_base64) <= 21848
    error_message = "The user data has more than 16 KiB."
  }
}

run "a_machine_may_begin_with_a_snapshot" {
  command = plan

  module {
    source = "./modules/node"
  }

  variables {
    volume = { size_gib = 500, iops = 6000, throughput_mib = 500, snapshot_id = "snap-0123456789abcdef0" }
  }

  assert {
    condition     = aws_ebs_volume.data.snapshot_id == "snap-0123456789abcdef0"
    error_message = "The volume is empty."
  }
}
