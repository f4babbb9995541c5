# The bucket of the files that COPY loads. The cluster only reads it.

resource "aws_s3_bucket" "load" {
  bucket_prefix = "${var.name_prefix}-"
  tags          = var.tags
}

resource "aws_s3_bucket_public_access_block" "load" {
  bucket                  = aws_s3_bucket.load.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "load" {
  bucket = aws_s3_bucket.load.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "load" {
  bucket = aws_s3_bucket.load.id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_versioning" "load" {
  bucket = aws_s3_bucket.load.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "load" {
  bucket = aws_s3_bucket.load.id

  rule {
    id     = "old"
    status = "Enabled"
    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 3
    }

    noncurrent_version_expiration {
      noncurrent_days = 30
    }

    dynamic "expiration" {
      for_each = var.expire_after_days == null ? [] : [var.expire_after_days]

      content {
        days = expiration.value
      }
    }
  }

  # S3 takes rules about versions only from a bucket that has them.
  depends_on = [aws_s3_bucket_versioning.load]
}

resource "aws_s3_bucket_policy" "load" {
  bucket = aws_s3_bucket.load.id
  # A policy of a bucket that denies needs no list of actions: everything without TLS is refused.
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "OnlyOverTLS"
      Effect    = "Deny"
      Principal = { AWS = "*" }
      Action    = "s3:*"
      Resource  = [aws_s3_bucket.load.arn, "${aws_s3_bucket.load.arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })

  depends_on = [aws_s3_bucket_public_access_block.load]
}
