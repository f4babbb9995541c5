output "endpoint" {
  description = "What clients connect to."
  value       = module.volary.endpoint
}

output "python" {
  description = "A snippet of Python that connects."
  value       = module.volary.python
}

output "instance_ids" {
  description = "The machines by the names of the nodes."
  value       = module.volary.instance_ids
}
