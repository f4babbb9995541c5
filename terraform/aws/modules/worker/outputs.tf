output "security_group_id" {
  description = "The security group of the workers."
  value       = aws_security_group.worker.id
}

output "role_arn" {
  description = "The role of the workers."
  value       = module.role.arn
}

output "instance_ids" {
  description = "The machines of the workers by their names."
  value       = { for name, node in module.node : name => node.instance_id }
}

output "volume_ids" {
  description = "The data volumes of the workers by their names."
  value       = { for name, node in module.node : name => node.volume_id }
}
