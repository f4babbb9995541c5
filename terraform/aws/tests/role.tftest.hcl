# What the machines may do in AWS.

mock_provider "aws" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  name = "kiwi-gateway"
  secret_arns = [
    "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/secret-AbCdEf",
    "arn:aws:secretsmanager:eu-central-1:123456789012:secret:kiwi/key-AbCdEf",
  ]
  kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
  objects     = ["s3://kiwi-load/", "s3://flights/parquet/", "s3://packages/volary.deb"]
}

run "no_action_and_no_resource_is_everything" {
  command = plan

  module {
    source = "./modules/role"
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement :
      alltrue([for action in flatten([statement.Action]) : !strcontains(action, "*")])
    ])
    error_message = "The policy allows a class of actions."
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement :
      alltrue([for resource in flatten([statement.Resource]) : can(regex("^arn:aws:[a-z0-9]+:[^*]*[^*:]/?\\*?$", resource))])
    ])
    error_message = "The policy allows actions on everything."
  }
}

run "machines_read_only_their_secrets_and_files" {
  command = plan

  module {
    source = "./modules/role"
  }

  assert {
    condition = jsonencode({
      for statement in jsondecode(aws_iam_role_policy.node.policy).Statement : statement.Sid => statement.Resource
      }) == jsonencode({
      ReadSecrets = var.secret_arns
      Decrypt     = [var.kms_key_arn]
      ReadObjects = ["arn:aws:s3:::kiwi-load/*", "arn:aws:s3:::flights/parquet/*", "arn:aws:s3:::packages/volary.deb"]
      ListBuckets = ["arn:aws:s3:::kiwi-load", "arn:aws:s3:::flights"]
    })
    error_message = "The policy names other resources."
  }
}

run "a_machine_that_loads_nothing_reads_no_bucket" {
  command = plan

  module {
    source = "./modules/role"
  }

  variables {
    objects     = []
    kms_key_arn = null
  }

  assert {
    condition     = [for statement in jsondecode(aws_iam_role_policy.node.policy).Statement : statement.Sid] == ["ReadSecrets"]
    error_message = "The policy allows more than it must."
  }
}

run "sessions_are_opened_through_systems_manager" {
  command = plan

  module {
    source = "./modules/role"
  }

  assert {
    condition     = aws_iam_role_policy_attachment.session_manager.policy_arn == "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
    error_message = "Operators cannot reach the machine."
  }
}
