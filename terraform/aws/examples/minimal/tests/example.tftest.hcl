mock_provider "aws" {
  source          = "../../tests/mocks"
  override_during = plan
}

variables {
  secrets = {
    cluster        = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/secret-AbCdEf"
    authority      = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/authority-AbCdEf"
    certificate    = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/node-AbCdEf"
    key            = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/key-AbCdEf"
    admin_password = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/admin-AbCdEf"
  }
  package = {
    url    = "https://packages.example/volary-0.1.0-x86_64.tar.gz"
    sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
  }
}

run "the_example_makes_a_gateway_and_two_workers" {
  command = plan

  assert {
    condition     = join(",", keys(output.instance_ids)) == "1,2,gateway"
    error_message = "The example makes other machines."
  }
}
