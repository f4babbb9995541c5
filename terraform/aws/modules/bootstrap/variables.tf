variable "role" {
  description = "What the machine is: gateway or worker."
  type        = string

  validation {
    condition     = contains(["gateway", "worker"], var.role)
    error_message = "The role is gateway or worker."
  }
}

variable "node" {
  description = <<-EOT
    The node. `listen` is the address that it listens on. A worker has three more: `advertise`, the host and port that
    others reach it at; `gateway`, the URI of the gateway; and `zone`, where it is placed.
  EOT
  type = object({
    listen    = string
    advertise = optional(string)
    gateway   = optional(string)
    zone      = optional(string)
  })

  validation {
    condition     = var.role == "gateway" || (var.node.advertise != null && var.node.gateway != null)
    error_message = "A worker needs an address to advertise and the URI of its gateway."
  }
}

variable "tls" {
  description = <<-EOT
    What the node does with the certificates in the directory `tls`: `node_name` is a name that the certificates of all
    nodes have. With `client_authorities`, the file client-authorities.pem has further authorities, of clients only.
  EOT
  type = object({
    node_name                   = string
    client_authorities          = optional(bool, false)
    require_client_certificates = optional(bool, false)
  })
}

variable "operations" {
  description = "The listener of metrics and health: its address, and whether /metrics asks for the token in the file operations-token. null = none."
  type = object({
    listen = string
    token  = optional(bool, false)
  })
  default = null
}

variable "traces" {
  description = "Where traces are sent, and which share of statements is traced. null = none."
  type = object({
    endpoint = string
    sample   = optional(number, 0.01)
  })
  default = null
}

variable "settings" {
  description = "Further settings of the product: an object with dotted keys, such as { \"gateway.query.timeout\" = \"10m\" }."
  type        = any
  default     = {}

  validation {
    condition     = !anytrue([for key in keys(var.settings) : can(regex("(secret|password)$", key))])
    error_message = "The settings are no place for secrets, because the state would keep them: give the ARN of a secret."
  }

  validation {
    condition     = length(setsubtract(keys(var.settings), local.known_settings)) == 0
    error_message = "Unknown settings, or settings that this module decides: ${join(", ", setsubtract(keys(var.settings), local.known_settings))}."
  }
}

variable "environment" {
  description = "Environment variables of the node that are no secrets."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for value in values(var.environment) : can(regex("^[A-Za-z0-9_./:@-]*$", value))])
    error_message = "A value has a character that would have to be quoted."
  }
}

variable "secrets" {
  description = "Secrets that the machine fetches by their ARNs when it boots: environment variables, and files in the directory `tls`."
  type = object({
    region    = string
    variables = optional(map(string), {})
    files     = optional(map(string), {})
  })

  validation {
    condition = alltrue([
      for arn in concat(values(var.secrets.variables), values(var.secrets.files)) :
      can(regex("^arn:[a-z-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+$", arn))
    ])
    error_message = "A secret is given by its ARN in the Secrets Manager."
  }
}

variable "package" {
  description = "The package that is installed: a Debian package (.deb) or an archive (.tar.gz) with the program `volary`, by https:// or s3://."
  type = object({
    url    = string
    sha256 = string
  })

  validation {
    condition     = can(regex("^(https|s3)://[A-Za-z0-9/_+=.@:~%-]+\\.(deb|tar\\.gz)$", var.package.url))
    error_message = "The URL of the package begins with https:// or s3:// and ends with .deb or .tar.gz."
  }

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.package.sha256))
    error_message = "The sha256 of the package has 64 hexadecimal digits."
  }
}

variable "volume_id" {
  description = "The id of the EBS volume of the data directory. It is attached after the machine has started."
  type        = string
}

variable "directories" {
  description = "Where settings, certificates and data are. Another place needs another unit, so only tests change this."
  type = object({
    settings = optional(string, "/etc/volary")
    data     = optional(string, "/var/lib/volary")
  })
  default = {}
}
