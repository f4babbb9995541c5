# A load balancer gets a security group when it is made, or never.
resource "aws_security_group" "load_balancer" {
  name_prefix = "${local.name}-lb-"
  description = "Load balancer of ${local.name}"
  vpc_id      = var.network.vpc_id
  tags        = merge(var.tags, { Name = "${local.name}-lb" })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_security_group" "gateway" {
  name_prefix = "${local.name}-"
  description = "Gateway of ${var.name}"
  vpc_id      = var.network.vpc_id
  tags        = local.tags

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = toset(var.clients.cidr_blocks)

  security_group_id = aws_security_group.load_balancer.id
  description       = "Clients"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = var.port
  to_port           = var.port
  tags              = var.tags
}

# The ids of groups may be known only when they are made, so they cannot be keys.
resource "aws_vpc_security_group_ingress_rule" "client_groups" {
  count = length(var.clients.security_group_ids)

  security_group_id            = aws_security_group.load_balancer.id
  description                  = "Clients"
  referenced_security_group_id = var.clients.security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = var.port
  to_port                      = var.port
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "load_balancer" {
  for_each = toset([for port in [var.port, try(var.operations.port, null)] : tostring(port) if port != null])

  security_group_id            = aws_security_group.load_balancer.id
  description                  = "The gateway, and its health"
  referenced_security_group_id = aws_security_group.gateway.id
  ip_protocol                  = "tcp"
  from_port                    = tonumber(each.key)
  to_port                      = tonumber(each.key)
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "load_balancer" {
  for_each = toset([for port in [var.port, try(var.operations.port, null)] : tostring(port) if port != null])

  security_group_id            = aws_security_group.gateway.id
  description                  = "Clients through the load balancer, and its questions about health"
  referenced_security_group_id = aws_security_group.load_balancer.id
  ip_protocol                  = "tcp"
  from_port                    = tonumber(each.key)
  to_port                      = tonumber(each.key)
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "workers" {
  security_group_id            = aws_security_group.gateway.id
  description                  = "Workers that join"
  referenced_security_group_id = var.worker_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = var.port
  to_port                      = var.port
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "workers" {
  security_group_id            = aws_security_group.gateway.id
  description                  = "Workers"
  referenced_security_group_id = var.worker_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = var.worker_port
  to_port                      = var.worker_port
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "outside" {
  for_each = var.egress

  security_group_id = aws_security_group.gateway.id
  description       = each.key
  cidr_ipv4         = each.value.cidr_ipv4
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
  tags              = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "scrapers" {
  for_each = toset(var.operations == null ? [] : var.operations.cidr_blocks)

  security_group_id = aws_security_group.gateway.id
  description       = "Prometheus"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = var.operations.port
  to_port           = var.operations.port
  tags              = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "scraper_groups" {
  count = var.operations == null ? 0 : length(var.operations.security_group_ids)

  security_group_id            = aws_security_group.gateway.id
  description                  = "Prometheus"
  referenced_security_group_id = var.operations.security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = var.operations.port
  to_port                      = var.operations.port
  tags                         = var.tags
}
