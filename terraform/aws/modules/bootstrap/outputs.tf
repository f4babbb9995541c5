output "user_data" {
  description = "The user data of the machine, for cloud-init."
  value       = local.user_data

  precondition {
    condition     = local.user_data_bytes <= 16384
    error_message = "The user data has ${local.user_data_bytes} bytes, and EC2 takes 16384. Give fewer settings."
  }
}

output "files" {
  description = "The files of the machine by their paths: { mode, content }."
  value       = local.files
}

output "settings" {
  description = "The settings of the node, as TOML."
  value       = local.toml
}

output "data_directory" {
  description = "The directory that the data volume is mounted at."
  value       = local.data
}

output "unit" {
  description = "The systemd unit of the node."
  value       = local.unit
}
