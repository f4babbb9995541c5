# The gateway: one machine that keeps the catalog on its data volume. Clients reach it through a load balancer, so that
# their address stays when several gateways share one catalog.

locals {
  name = "${var.name}-gateway"
  tags = merge(var.tags, { Name = local.name })
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
  source = "../node"

  name                   = local.name
  subnet_id              = var.network.subnet_ids[var.gateway.zone]
  zone                   = var.gateway.zone
  security_group_ids     = [aws_security_group.gateway.id]
  instance_profile       = module.role.instance_profile
  instance_type          = var.gateway.instance_type
  image_id               = var.image_id
  volume                 = var.gateway.volume
  kms_key_arn            = var.kms_key_arn
  termination_protection = var.termination_protection
  # Snapshots find the volumes by this tag.
  tags = merge(var.tags, { "volary:data" = local.name })

  bootstrap = merge(var.bootstrap, {
    role    = "gateway"
    port    = var.port
    secrets = var.secrets
    settings = merge({
      # Without a limit that fits the volume, a query that spills would fill it, and then nothing can be committed.
      "gateway.memory.spill_limit" = "${floor(var.gateway.volume.size_gib * 0.7)}GiB"
    }, var.settings)
    operations = var.operations == null ? null : {
      listen = "0.0.0.0:${var.operations.port}"
      token  = var.operations.token
    }
  })
}
