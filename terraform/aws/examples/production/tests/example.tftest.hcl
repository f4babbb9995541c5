mock_provider "aws" {
  source          = "../../tests/mocks"
  override_during = plan
}

variables {
  secrets = {
    cluster            = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/secret-AbCdEf"
    authority          = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/authority-AbCdEf"
    certificate        = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/node-AbCdEf"
    key                = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/key-AbCdEf"
    admin_password     = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/admin-AbCdEf"
    worker_certificate = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/worker-AbCdEf"
    worker_key         = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/worker-key-AbCdEf"
    metrics_token      = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/metrics-AbCdEf"
  }
  package = {
    url    = "https://packages.example/volary-0.1.0-x86_64.tar.gz"
    sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
  }
  image_id    = "ami-0123456789abcdef0"
  kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
  dns         = { zone_id = "Z0123456789XYZ", name = "kiwi.example.org" }
}

run "the_example_makes_six_workers_behind_the_name_of_the_gateway" {
  command = plan

  assert {
    condition     = join(",", keys(output.instance_ids)) == "a1,a2,b1,b2,c1,c2,gateway"
    error_message = "The example makes other machines."
  }

  assert {
    condition     = output.endpoint == "grpc+tls://kiwi.example.org:7100"
    error_message = "Clients do not use the name of the gateway."
  }
}
