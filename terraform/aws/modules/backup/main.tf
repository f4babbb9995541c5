# Daily snapshots of the data volumes. A snapshot is what a power cut would leave behind, which nodes are made for. The
# gateway comes first: workers that have more rows than the catalog can be recovered, and those that have fewer cannot.

resource "aws_iam_role" "snapshots" {
  name_prefix = "${var.name}-snapshots-"
  description = "Snapshots of ${var.name}"
  tags        = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "dlm.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy_attachment" "snapshots" {
  role       = aws_iam_role.snapshots.name
  policy_arn = "arn:${var.partition}:iam::aws:policy/service-role/AWSDataLifecycleManagerServiceRole"
}

resource "aws_dlm_lifecycle_policy" "data" {
  for_each = var.times

  description        = "Data of the ${each.key} of ${var.name}"
  execution_role_arn = aws_iam_role.snapshots.arn
  state              = "ENABLED"
  tags               = var.tags

  policy_details {
    resource_types = ["VOLUME"]
    # Volumes that have any one of several tags would be taken, so there is only one.
    target_tags = { "volary:data" = "${var.name}-${each.key}" }

    schedule {
      name      = "daily"
      copy_tags = true

      create_rule {
        interval      = 24
        interval_unit = "HOURS"
        times         = [each.value]
      }

      retain_rule {
        count = var.kept
      }
    }
  }
}
