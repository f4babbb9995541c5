# The machines of a cluster, as the modules of AWS describe them, with addresses and directories of this machine.

terraform {
  required_version = ">= 1.11"
}

# Nodes have different settings, so no type fits them all.
variable "nodes" {
  type = any
}

variable "package" {
  type = object({ url = string, sha256 = string })
}

module "node" {
  source   = "../aws/modules/bootstrap"
  for_each = var.nodes

  role        = each.value.role
  node        = each.value.node
  tls         = { node_name = "volary.internal", require_client_certificates = false }
  directories = try(each.value.directories, {})
  settings    = try(each.value.settings, {})
  operations  = try(each.value.operations, null)
  environment = { AWS_REGION = "eu-central-1" }
  secrets     = each.value.secrets
  package     = var.package
  volume_id   = "vol-0123456789abcdef0"
}

output "nodes" {
  value = { for name, node in module.node : name => { user_data = node.user_data, files = node.files, unit = node.unit } }
}
