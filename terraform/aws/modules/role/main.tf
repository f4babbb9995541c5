# What the machines of one kind may do: read their secrets and files, and be reached through Systems Manager. The policy
# is written with jsonencode, so that tests read it.

locals {
  # ARNs begin with arn:PARTITION.
  partition = split(":", var.secret_arns[0])[1]
  buckets   = distinct([for url in var.objects : split("/", url)[2] if endswith(url, "/")])

  statements = concat(
    [{
      Sid      = "ReadSecrets"
      Effect   = "Allow"
      Action   = ["secretsmanager:GetSecretValue"]
      Resource = distinct(var.secret_arns)
    }],
    [for key in var.kms_key_arn == null ? [] : [var.kms_key_arn] : {
      Sid      = "Decrypt"
      Effect   = "Allow"
      Action   = ["kms:Decrypt"]
      Resource = [key]
    }],
    [for objects in length(var.objects) == 0 ? [] : [var.objects] : {
      Sid    = "ReadObjects"
      Effect = "Allow"
      Action = ["s3:GetObject"]
      Resource = [
        for url in objects :
        "arn:${local.partition}:s3:::${trimprefix(url, "s3://")}${endswith(url, "/") ? "*" : ""}"
      ]
    }],
    [for buckets in length(local.buckets) == 0 ? [] : [local.buckets] : {
      Sid      = "ListBuckets"
      Effect   = "Allow"
      Action   = ["s3:ListBucket", "s3:GetBucketLocation"]
      Resource = [for bucket in buckets : "arn:${local.partition}:s3:::${bucket}"]
    }],
  )
}

resource "aws_iam_role" "node" {
  name_prefix = "${var.name}-"
  description = "Machines of ${var.name}"
  tags        = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "node" {
  name   = "nodes"
  role   = aws_iam_role.node.id
  policy = jsonencode({ Version = "2012-10-17", Statement = local.statements })
}

# There is no SSH. Operators open sessions through Systems Manager, where IAM says who may and CloudTrail says who did.
resource "aws_iam_role_policy_attachment" "session_manager" {
  role       = aws_iam_role.node.name
  policy_arn = "arn:${local.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_iam_instance_profile" "node" {
  name_prefix = "${var.name}-"
  role        = aws_iam_role.node.name
  tags        = var.tags
}
