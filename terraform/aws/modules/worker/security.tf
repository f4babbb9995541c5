resource "aws_security_group" "worker" {
  name_prefix = "${local.name}-"
  description = "Workers of ${var.name}"
  vpc_id      = var.network.vpc_id
  tags        = merge(var.tags, { Name = local.name })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "gateway" {
  security_group_id            = aws_security_group.worker.id
  description                  = "The gateway"
  referenced_security_group_id = var.gateway.security_group_id
  ip_protocol                  = "tcp"
  from_port                    = var.port
  to_port                      = var.port
  tags                         = var.tags
}

# A worker merges rows of other workers if that is estimated to be faster.
resource "aws_vpc_security_group_ingress_rule" "workers" {
  security_group_id            = aws_security_group.worker.id
  description                  = "Other workers"
  referenced_security_group_id = aws_security_group.worker.id
  ip_protocol                  = "tcp"
  from_port                    = var.port
  to_port                      = var.port
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "workers" {
  security_group_id            = aws_security_group.worker.id
  description                  = "Other workers"
  referenced_security_group_id = aws_security_group.worker.id
  ip_protocol                  = "tcp"
  from_port                    = var.port
  to_port                      = var.port
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "gateway" {
  security_group_id            = aws_security_group.worker.id
  description                  = "The gateway, to join"
  referenced_security_group_id = var.gateway.security_group_id
  ip_protocol                  = "tcp"
  from_port                    = var.gateway.port
  to_port                      = var.gateway.port
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "outside" {
  for_each = var.egress

  security_group_id = aws_security_group.worker.id
  description       = each.key
  cidr_ipv4         = each.value.cidr_ipv4
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
  tags              = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "scrapers" {
  for_each = toset(var.operations == null ? [] : var.operations.cidr_blocks)

  security_group_id = aws_security_group.worker.id
  description       = "Prometheus"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = var.operations.port
  to_port           = var.operations.port
  tags              = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "scraper_groups" {
  count = var.operations == null ? 0 : length(var.operations.security_group_ids)

  security_group_id            = aws_security_group.worker.id
  description                  = "Prometheus"
  referenced_security_group_id = var.operations.security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = var.operations.port
  to_port                      = var.operations.port
  tags                         = var.tags
}
