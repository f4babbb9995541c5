output "address" {
  description = "The address that workers connect to."
  value       = module.node.private_ip
}

output "load_balancer" {
  description = "The DNS name and the hosted zone of the load balancer."
  value       = { dns_name = aws_lb.gateway.dns_name, zone_id = aws_lb.gateway.zone_id }
}

output "security_group_ids" {
  description = "The security groups of the gateway and its load balancer."
  value       = { gateway = aws_security_group.gateway.id, load_balancer = aws_security_group.load_balancer.id }
}

output "role_arn" {
  description = "The role of the gateway."
  value       = module.role.arn
}

output "instance_id" {
  description = "The machine of the gateway."
  value       = module.node.instance_id
}

output "volume_id" {
  description = "The data volume of the gateway."
  value       = module.node.volume_id
}
