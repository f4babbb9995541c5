# The bucket of files to load.

mock_provider "aws" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  name_prefix = "kiwi-load"
}

run "the_bucket_is_private_and_encrypted" {
  command = plan

  module {
    source = "./modules/storage"
  }

  assert {
    condition = (
      aws_s3_bucket_public_access_block.load.block_public_acls && aws_s3_bucket_public_access_block.load.block_public_policy &&
      aws_s3_bucket_public_access_block.load.ignore_public_acls && aws_s3_bucket_public_access_block.load.restrict_public_buckets
    )
    error_message = "The bucket may become public."
  }

  assert {
    condition     = one(one(aws_s3_bucket_server_side_encryption_configuration.load.rule).apply_server_side_encryption_by_default).sse_algorithm == "AES256"
    error_message = "The bucket is not encrypted."
  }
}

run "the_bucket_is_read_over_tls_only" {
  command = plan

  module {
    source = "./modules/storage"
  }

  assert {
    condition = jsondecode(aws_s3_bucket_policy.load.policy).Statement[0] == {
      Sid       = "OnlyOverTLS"
      Effect    = "Deny"
      Principal = { AWS = "*" }
      Action    = "s3:*"
      Resource  = ["arn:aws:s3:::kiwi-load-20260101", "arn:aws:s3:::kiwi-load-20260101/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }
    error_message = "The bucket is read without TLS."
  }
}

run "old_files_are_deleted_only_if_that_is_asked_for" {
  command = plan

  module {
    source = "./modules/storage"
  }

  assert {
    condition     = length(aws_s3_bucket_lifecycle_configuration.load.rule[0].expiration) == 0
    error_message = "Files are deleted though nobody asked for it."
  }
}

run "old_files_are_deleted" {
  command = plan

  module {
    source = "./modules/storage"
  }

  variables {
    expire_after_days = 90
  }

  assert {
    condition     = aws_s3_bucket_lifecycle_configuration.load.rule[0].expiration[0].days == 90
    error_message = "Old files stay."
  }
}
