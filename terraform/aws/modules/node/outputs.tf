output "private_ip" {
  description = "The address of the node, which it keeps."
  value       = aws_network_interface.node.private_ip
}

output "instance_id" {
  description = "The machine that the node runs on now."
  value       = aws_instance.node.id
}

output "volume_id" {
  description = "The data volume of the node."
  value       = aws_ebs_volume.data.id
}
