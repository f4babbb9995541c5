output "policy_ids" {
  description = "The policies that make the snapshots, of the gateway and of the workers."
  value       = { for role, policy in aws_dlm_lifecycle_policy.data : role => policy.id }
}
