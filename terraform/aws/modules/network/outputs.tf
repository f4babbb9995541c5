output "vpc_id" {
  description = "The VPC."
  value       = aws_vpc.this.id
}

output "subnet_ids" {
  description = "The private subnets by their zones."
  value       = { for zone, subnet in aws_subnet.private : zone => subnet.id }

  # A machine that starts before its way to the secrets exists would only wait.
  depends_on = [aws_route.nat, aws_route_table_association.private, aws_vpc_endpoint.interface, aws_vpc_endpoint.s3]
}
