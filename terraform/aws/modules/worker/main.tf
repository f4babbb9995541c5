# Workers hold rows, so each has a name, an address and a data volume that outlive its machine. One is added or replaced
# without touching the others.

locals {
  name = "${var.name}-worker"
}

module "role" {
  source = "../role"

  name        = local.name
  secret_arns = concat(values(var.secrets.files), values(var.secrets.variables))
  kms_key_arn = var.kms_key_arn
  objects     = var.objects
  tags        = var.tags
}

module "node" {
  source   = "../node"
  for_each = var.workers

  name                   = "${local.name}-${each.key}"
  subnet_id              = var.network.subnet_ids[each.value.zone]
  zone                   = each.value.zone
  security_group_ids     = [aws_security_group.worker.id]
  instance_profile       = module.role.instance_profile
  instance_type          = each.value.instance_type
  image_id               = var.image_id
  volume                 = each.value.volume
  kms_key_arn            = var.kms_key_arn
  termination_protection = var.termination_protection
  # Snapshots find the volumes by this tag.
  tags = merge(var.tags, { "volary:data" = local.name })

  bootstrap = merge(var.bootstrap, {
    role    = "worker"
    port    = var.port
    gateway = var.gateway.uri
    secrets = var.secrets
    settings = merge({
      # Most of the volume is for rows.
      "worker.memory.spill_limit" = "${floor(each.value.volume.size_gib * 0.25)}GiB"
    }, var.settings)
    operations = var.operations == null ? null : {
      listen = "0.0.0.0:${var.operations.port}"
      token  = var.operations.token
    }
  })
}
