# Everything that a machine is given when it starts. This module uses no provider, so it can be applied anywhere, and
# tests start the product with what it writes.

locals {
  role = var.role
  etc  = var.directories.settings
  tls  = "${local.etc}/tls"
  data = "${var.directories.data}/${local.role}"

  is_gateway = local.role == "gateway"

  # A key that the product does not know would stop the node when it starts.
  known_settings = split("\n", trimspace(file("${path.module}/files/settings.txt")))

  possible_settings = merge(var.settings, {
    "${local.role}.listen"           = var.node.listen
    "${local.role}.data_dir"         = local.data
    "${local.role}.tls.certificate"  = "${local.tls}/node.pem"
    "${local.role}.tls.key"          = "${local.tls}/node.key"
    "${local.role}.tls.authorities"  = "${local.tls}/authority.pem"
    "${local.role}.tls.node_name"    = var.tls.node_name
    "gateway.tls.client_authorities" = local.is_gateway && var.tls.client_authorities ? "${local.tls}/client-authorities.pem" : null
    "worker.gateway"                 = local.is_gateway ? null : var.node.gateway
    "worker.advertise"               = local.is_gateway ? null : var.node.advertise
    "worker.zone"                    = local.is_gateway ? null : var.node.zone
    "operations.listen"              = try(var.operations.listen, null)
    "operations.tls.certificate"     = var.operations == null ? null : "${local.tls}/node.pem"
    "operations.tls.key"             = var.operations == null ? null : "${local.tls}/node.key"
    "operations.token_file"          = try(var.operations.token, false) ? "${local.tls}/operations-token" : null
    "traces.endpoint"                = try(var.traces.endpoint, null)
    "traces.sample"                  = try(var.traces.sample, null)

    "gateway.tls.require_client_certificates" = local.is_gateway && var.tls.require_client_certificates ? true : null
  })
  settings = { for key, value in local.possible_settings : key => value if value != null }

  # JSON's strings, numbers, booleans and lists are also TOML's.
  toml = join("\n", concat(
    ["# Rendered by Terraform. This node gets other settings when it is replaced.", ""],
    [for key, value in local.settings : "${key} = ${jsonencode(value)}"],
    [""],
  ))

  environment = join("", concat(
    ["# Rendered by Terraform. Secrets follow, which the machine has fetched.\n"],
    [for name, value in var.environment : "${name}=${value}\n"],
  ))

  # The volume's id is in the name of its device, without the dash.
  device = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${replace(var.volume_id, "-", "")}"

  boot_variables = {
    ROLE               = local.role
    REGION             = var.secrets.region
    SETTINGS_DIRECTORY = local.etc
    DATA_DIRECTORY     = local.data
    DEVICE             = local.device
    FSTAB              = "/etc/fstab"
    PROGRAM            = "/usr/bin/volary"
    PACKAGE_URL        = var.package.url
    PACKAGE_SHA256     = var.package.sha256
    SECRET_FILES       = join(" ", [for name, arn in var.secrets.files : "${name}=${arn}"])
    SECRET_VARIABLES   = join(" ", [for name, arn in var.secrets.variables : "${name}=${arn}"])
  }
  conf = join("", [for name, value in local.boot_variables : "${name}='${value}'\n"])

  unit = "volary-${local.role}.service"

  files = {
    "${local.etc}/${local.role}.toml"              = { mode = "0644", content = local.toml }
    "${local.etc}/${local.role}.env.in"            = { mode = "0644", content = local.environment }
    "${local.etc}/bootstrap.conf"                  = { mode = "0644", content = local.conf }
    "/usr/local/sbin/volary-bootstrap"             = { mode = "0755", content = file("${path.module}/files/volary-bootstrap") }
    "/etc/systemd/system/volary-bootstrap.service" = { mode = "0644", content = file("${path.module}/files/volary-bootstrap.service") }
    "/etc/systemd/system/${local.unit}"            = { mode = "0644", content = file("${path.module}/files/${local.unit}") }
  }

  cloud_config = {
    write_files = [for path, file in local.files : { path = path, permissions = file.mode, content = file.content }]
    runcmd = [
      ["systemctl", "daemon-reload"],
      ["systemctl", "enable", "--now", "--no-block", "volary-bootstrap.service"],
    ]
  }
  user_data = join("\n", ["#cloud-config", yamlencode(local.cloud_config)])

  # `length` counts characters, and EC2 counts bytes.
  user_data_base64 = base64encode(local.user_data)
  user_data_bytes  = length(local.user_data_base64) / 4 * 3 - length(regexall("=", local.user_data_base64))
}
