# A Volary cluster: one gateway behind a load balancer, and workers, each with an address and a volume that it keeps.

locals {
  ports = { gateway = 7100, worker = 7200, operations = 7190 }
  tags  = merge(var.tags, { "volary:cluster" = var.name })

  # arn:PARTITION:secretsmanager:REGION:…. The cluster is where its secrets are.
  partition = split(":", var.secret_arn)[1]
  region    = split(":", var.secret_arn)[3]

  vpc_id     = try(var.network.existing.vpc_id, module.network[0].vpc_id)
  subnet_ids = try(var.network.existing.subnet_ids, module.network[0].subnet_ids)
  zones      = try(sort(keys(var.network.existing.subnet_ids)), var.network.zones)

  members = coalesce(var.worker.members, {
    for number in range(3) : tostring(number + 1) => { zone = local.zones[number % length(local.zones)] }
  })
  gateway_zone = coalesce(var.gateway.zone, local.zones[0])

  image_id   = var.image.id != null ? var.image.id : data.aws_ssm_parameter.image[0].insecure_value
  load_roots = concat(var.storage.bucket ? ["s3://${module.storage[0].bucket}/"] : [], var.storage.read)
  package    = startswith(var.package.url, "s3://") ? [var.package.url] : []

  secret_variables = { VOLARY_SECRET = var.secret_arn }
  secret_files = merge(
    { "authority.pem" = var.tls.authorities_arn, "node.pem" = var.tls.certificate_arn, "node.key" = var.tls.key_arn },
    var.operations.enabled && var.operations.token_arn != null ? { operations-token = var.operations.token_arn } : {},
  )

  operations = var.operations.enabled ? {
    port               = local.ports.operations
    token              = var.operations.token_arn != null
    cidr_blocks        = var.operations.cidr_blocks
    security_group_ids = var.operations.security_group_ids
  } : null

  bootstrap = {
    tls = {
      node_name                   = var.tls.node_name
      client_authorities          = var.tls.client_authorities_arn != null
      require_client_certificates = var.tls.require_client_certificates
    }
    traces = var.traces
    # The reader of S3 asks the environment for its region. The rights come from the machine's role.
    environment = { AWS_REGION = local.region }
    package     = var.package
  }
}

data "aws_ssm_parameter" "image" {
  count = var.image.id == null ? 1 : 0
  name  = var.image.parameter
}

module "network" {
  source = "./modules/network"
  count  = var.network.existing == null ? 1 : 0

  name       = var.name
  cidr_block = var.network.cidr_block
  zones      = var.network.zones
  nat        = var.network.nat
  region     = local.region
  tags       = local.tags
}

module "storage" {
  source = "./modules/storage"
  count  = var.storage.bucket ? 1 : 0

  name_prefix       = "${var.name}-load"
  kms_key_arn       = var.kms_key_arn
  expire_after_days = var.storage.expire_after_days
  tags              = local.tags
}

module "gateway" {
  source = "./modules/gateway"

  name    = var.name
  network = { vpc_id = local.vpc_id, subnet_ids = local.subnet_ids }
  port    = local.ports.gateway
  gateway = {
    zone          = local.gateway_zone
    instance_type = var.gateway.instance_type
    volume        = merge(var.gateway.volume, { snapshot_id = lookup(var.restore, "gateway", null) })
  }
  settings = merge({ "gateway.load.allowed_roots" = local.load_roots }, var.gateway.settings)
  secrets = {
    region = local.region
    variables = merge(local.secret_variables, var.admin_password_arn == null ? {} : {
      VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD = var.admin_password_arn
    })
    files = merge(local.secret_files, var.tls.client_authorities_arn == null ? {} : {
      "client-authorities.pem" = var.tls.client_authorities_arn
    })
  }
  objects = concat(local.load_roots, local.package)
  load_balancer = {
    internal            = var.load_balancer.internal
    subnet_ids          = coalesce(var.load_balancer.subnet_ids, values(local.subnet_ids))
    deletion_protection = var.load_balancer.deletion_protection
  }
  clients                  = var.clients
  worker_security_group_id = module.worker.security_group_id
  worker_port              = local.ports.worker

  bootstrap              = local.bootstrap
  operations             = local.operations
  image_id               = local.image_id
  egress                 = var.egress
  kms_key_arn            = var.kms_key_arn
  termination_protection = var.termination_protection
  tags                   = local.tags
}

module "worker" {
  source = "./modules/worker"

  name    = var.name
  network = { vpc_id = local.vpc_id, subnet_ids = local.subnet_ids }
  port    = local.ports.worker
  workers = {
    for name, member in local.members : name => {
      zone          = member.zone
      instance_type = var.worker.instance_type
      volume        = merge(var.worker.volume, { snapshot_id = lookup(var.restore, name, null) })
    }
  }
  settings = var.worker.settings
  secrets = {
    region    = local.region
    variables = local.secret_variables
    files = merge(local.secret_files, var.tls.worker == null ? {} : {
      "node.pem" = var.tls.worker.certificate_arn
      "node.key" = var.tls.worker.key_arn
    })
  }
  objects = local.package
  gateway = {
    uri               = "grpc+tls://${module.gateway.address}:${local.ports.gateway}"
    port              = local.ports.gateway
    security_group_id = module.gateway.security_group_ids.gateway
  }

  bootstrap              = local.bootstrap
  operations             = local.operations
  image_id               = local.image_id
  egress                 = var.egress
  kms_key_arn            = var.kms_key_arn
  termination_protection = var.termination_protection
  tags                   = local.tags
}

module "backup" {
  source = "./modules/backup"
  count  = var.backup.enabled ? 1 : 0

  name      = var.name
  kept      = var.backup.kept
  partition = local.partition
  tags      = local.tags
}

resource "aws_route53_record" "gateway" {
  count = var.load_balancer.dns == null ? 0 : 1

  zone_id = var.load_balancer.dns.zone_id
  name    = var.load_balancer.dns.name
  type    = "A"

  alias {
    name                   = module.gateway.load_balancer.dns_name
    zone_id                = module.gateway.load_balancer.zone_id
    evaluate_target_health = true
  }
}
