# The load balancer passes TCP on: TLS, its client certificates and HTTP/2 go from the client to the gateway.

resource "aws_lb" "gateway" {
  # AWS takes six characters here, and cuts nothing by itself.
  name_prefix                      = "${substr(var.name, 0, 5)}-"
  load_balancer_type               = "network"
  internal                         = var.load_balancer.internal
  subnets                          = var.load_balancer.subnet_ids
  security_groups                  = [aws_security_group.load_balancer.id]
  enable_deletion_protection       = var.load_balancer.deletion_protection
  enable_cross_zone_load_balancing = true
  tags                             = local.tags
}

resource "aws_lb_target_group" "gateway" {
  name_prefix = "${substr(var.name, 0, 5)}-"
  vpc_id      = var.network.vpc_id
  port        = var.port
  protocol    = "TCP"
  target_type = "ip"
  # The gateway limits failed logins and strangers by their addresses, so it must see these.
  preserve_client_ip = true
  # A gateway that stops lets running statements end for 20 seconds.
  deregistration_delay = 30
  tags                 = local.tags

  health_check {
    protocol            = var.operations == null ? "TCP" : "HTTPS"
    port                = var.operations == null ? var.port : var.operations.port
    path                = var.operations == null ? null : "/readyz"
    interval            = 10
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_lb_target_group_attachment" "gateway" {
  target_group_arn = aws_lb_target_group.gateway.arn
  target_id        = module.node.private_ip
  port             = var.port
}

resource "aws_lb_listener" "gateway" {
  load_balancer_arn = aws_lb.gateway.arn
  port              = var.port
  protocol          = "TCP"
  # A client that waits for a long query sends and gets nothing. A statement may run for an hour.
  tcp_idle_timeout_seconds = 3600
  tags                     = local.tags

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.gateway.arn
  }
}
