# A machine with an identity. Its address and its data volume stay when the machine itself is replaced, so the node on
# the new machine is the same node.

locals {
  tags = merge(var.tags, { Name = var.name })
}

resource "aws_network_interface" "node" {
  subnet_id       = var.subnet_id
  security_groups = var.security_group_ids
  description     = "The address of ${var.name}"
  tags            = local.tags
}

resource "aws_ebs_volume" "data" {
  availability_zone = var.zone
  type              = "gp3"
  size              = var.volume.size_gib
  iops              = var.volume.iops
  throughput        = var.volume.throughput_mib
  snapshot_id       = var.volume.snapshot_id
  encrypted         = true
  kms_key_id        = var.kms_key_arn
  # Whoever destroys the cluster keeps its rows.
  final_snapshot = true
  tags           = local.tags
}

module "bootstrap" {
  source = "../bootstrap"

  role = var.bootstrap.role
  node = {
    listen    = "0.0.0.0:${var.bootstrap.port}"
    advertise = "${aws_network_interface.node.private_ip}:${var.bootstrap.port}"
    gateway   = var.bootstrap.gateway
    zone      = var.zone
  }
  tls         = var.bootstrap.tls
  operations  = var.bootstrap.operations
  traces      = var.bootstrap.traces
  settings    = var.bootstrap.settings
  environment = var.bootstrap.environment
  secrets     = var.bootstrap.secrets
  package     = var.bootstrap.package
  volume_id   = aws_ebs_volume.data.id
}

resource "aws_instance" "node" {
  ami                     = var.image_id
  instance_type           = var.instance_type
  iam_instance_profile    = var.instance_profile
  user_data_base64        = base64encode(module.bootstrap.user_data)
  ebs_optimized           = true
  monitoring              = true
  disable_api_termination = var.termination_protection
  tags                    = local.tags

  primary_network_interface {
    network_interface_id = aws_network_interface.node.id
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    volume_type = "gp3"
    volume_size = 16
    encrypted   = true
    kms_key_id  = var.kms_key_arn
    tags        = local.tags
  }

  lifecycle {
    # A node that holds rows is replaced only by an operator, one at a time: terraform apply -replace=ADDRESS. Without
    # this, one changed setting would replace all nodes at once.
    ignore_changes = [ami, user_data_base64]
  }
}

resource "aws_volume_attachment" "data" {
  device_name = "/dev/sdf"
  volume_id   = aws_ebs_volume.data.id
  instance_id = aws_instance.node.id
  # The machine is shut down before it loses its volume, so the node ends its work and unmounts.
  stop_instance_before_detaching = true
}
