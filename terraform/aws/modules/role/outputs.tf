output "arn" {
  description = "The role."
  value       = aws_iam_role.node.arn
}

output "instance_profile" {
  description = "The instance profile."
  value       = aws_iam_instance_profile.node.name

  # A machine that starts before it may read its secrets only tries again.
  depends_on = [aws_iam_role_policy.node, aws_iam_role_policy_attachment.session_manager]
}
