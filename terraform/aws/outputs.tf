locals {
  host     = try(var.load_balancer.dns.name, module.gateway.load_balancer.dns_name)
  endpoint = "grpc+tls://${local.host}:${local.ports.gateway}"

  # How a client shows its certificate, if it must.
  client_certificate = var.tls.require_client_certificates ? "tls_certificate=\"client.pem\", tls_key=\"client.key\", " : ""
}

output "endpoint" {
  description = "What clients connect to."
  value       = local.endpoint
}

output "python" {
  description = "A snippet of Python that connects and asks for the nodes."
  value       = <<-EOT
    import volary

    with volary.connect("${local.endpoint}", tls_ca="authority.pem", ${local.client_certificate}username="admin", password="…") as db:
        print(db.sql("SELECT id, role, state FROM system.nodes").rows())
  EOT
}

output "bucket" {
  description = "The bucket of files to load. null = none was made."
  value       = try(module.storage[0].bucket, null)
}

output "role_arns" {
  description = "The roles of the machines, for the policies of keys and buckets."
  value       = { gateway = module.gateway.role_arn, worker = module.worker.role_arn }
}

output "security_group_ids" {
  description = "The security groups of the load balancer, the gateway and the workers."
  value       = merge(module.gateway.security_group_ids, { worker = module.worker.security_group_id })
}

output "instance_ids" {
  description = "The machines by the names of the nodes, for sessions of Systems Manager."
  value       = merge({ gateway = module.gateway.instance_id }, module.worker.instance_ids)
}

output "volume_ids" {
  description = "The data volumes by the names of the nodes."
  value       = merge({ gateway = module.gateway.volume_id }, module.worker.volume_ids)
}

output "zones" {
  description = "The availability zone of each node."
  value       = { gateway = local.gateway_zone, workers = { for name, member in local.members : name => member.zone } }
}
