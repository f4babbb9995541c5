variable "name" {
  description = "The name of the cluster. The names of all resources begin with it."
  type        = string

  validation {
    # The longest name made from it is that of the snapshots' role: 38 characters with its prefix.
    condition     = can(regex("^[a-z][a-z0-9-]{1,18}[a-z0-9]$", var.name))
    error_message = "The name has 3 to 20 lower-case letters, digits and dashes, and begins with a letter."
  }
}

variable "network" {
  description = <<-EOT
    Where the cluster is. Either a new VPC is made in the availability zones `zones`, or `existing` names a VPC and a
    private subnet for each zone. New zones are appended to the list, because its order decides about addresses.
    Subnets that exist need a way to the Secrets Manager, Systems Manager and S3.
  EOT
  type = object({
    zones      = optional(list(string))
    cidr_block = optional(string, "10.71.0.0/16")
    nat        = optional(string, "one")
    existing = optional(object({
      vpc_id     = string
      subnet_ids = map(string)
    }))
  })

  validation {
    condition     = (var.network.zones == null) != (var.network.existing == null)
    error_message = "The network has either zones, for a new VPC, or an existing VPC."
  }

  validation {
    condition     = var.network.zones == null || length(coalesce(var.network.zones, [])) <= 8
    error_message = "A new VPC has at most 8 zones."
  }

  validation {
    condition     = contains(["one", "one_per_zone", "none"], var.network.nat)
    error_message = "nat is one, one_per_zone or none."
  }
}

variable "tls" {
  description = <<-EOT
    ARNs of secrets with PEM files, as `volary certificates` makes them: the authorities of the nodes' certificates, and a
    certificate with its key. `node_name` is a name that the certificates of all nodes have. Workers show a certificate
    of their own if there is one. `client_authorities` sign certificates of clients only.
  EOT
  type = object({
    node_name                   = string
    authorities_arn             = string
    certificate_arn             = string
    key_arn                     = string
    worker                      = optional(object({ certificate_arn = string, key_arn = string }))
    client_authorities_arn      = optional(string)
    require_client_certificates = optional(bool, false)
  })

  validation {
    condition     = !startswith(var.tls.certificate_arn, "-----")
    error_message = "Certificates and keys are given by the ARNs of secrets, because the state would keep their text."
  }
}

variable "secret_arn" {
  description = "The ARN of a secret with the text that all nodes share: what `volary secret new` prints."
  type        = string

  validation {
    condition     = startswith(var.secret_arn, "arn:")
    error_message = "The secret is given by its ARN, because the state would keep its text."
  }
}

variable "admin_password_arn" {
  description = "The ARN of a secret with the password of the user admin. null = the first user is made with SQL from the gateway's machine."
  type        = string
  default     = null
}

variable "package" {
  description = "The package of Volary for the image: a Debian package or a .tar.gz with the program, by https:// or s3://."
  type = object({
    url    = string
    sha256 = string
  })
}

variable "image" {
  description = <<-EOT
    The image of the machines: `id`, or else the newest one that the public parameter names. It needs systemd, cloud-init,
    the agent of Systems Manager, and the AWS CLI or a package manager apt. Machines that run are not touched by a newer
    image.
  EOT
  type = object({
    id        = optional(string)
    parameter = optional(string, "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64")
  })
  default = {}
}

variable "gateway" {
  description = "The gateway: its machine, its data volume, the zone that it is in (null = the first one), and further settings."
  type = object({
    count         = optional(number, 1)
    zone          = optional(string)
    instance_type = optional(string, "m7i.xlarge")
    volume = optional(object({
      size_gib       = optional(number, 100)
      iops           = optional(number, 3000)
      throughput_mib = optional(number, 125)
    }), {})
    settings = optional(any, {})
  })
  default = {}

  validation {
    condition     = var.gateway.count == 1
    error_message = "There is one gateway, because the catalog is on its data volume. More need a shared metadata store."
  }

  validation {
    condition     = alltrue([for key in keys(var.gateway.settings) : can(regex("^(gateway|log|operations|traces)\\.", key))])
    error_message = "The settings of the gateway have keys such as gateway.query.timeout."
  }

  validation {
    condition     = var.gateway.volume.size_gib >= 20
    error_message = "The volume of the gateway has at least 20 GiB."
  }
}

variable "worker" {
  description = <<-EOT
    The workers: their machines, their data volumes, and further settings. `members` gives each its name and its zone.
    Without it, there are three in turn in the zones. A worker that is left out is destroyed, and its shards are lost
    with it.
  EOT
  type = object({
    members       = optional(map(object({ zone = string })))
    instance_type = optional(string, "r7i.2xlarge")
    volume = optional(object({
      size_gib       = optional(number, 500)
      iops           = optional(number, 6000)
      throughput_mib = optional(number, 500)
    }), {})
    settings = optional(any, {})
  })
  default = {}

  validation {
    condition     = var.worker.members == null || length(coalesce(var.worker.members, {})) > 0
    error_message = "There is at least one worker."
  }

  validation {
    condition     = alltrue([for name in keys(coalesce(var.worker.members, {})) : can(regex("^[a-z0-9-]{1,16}$", name))])
    error_message = "The name of a worker has at most 16 lower-case letters, digits and dashes."
  }

  validation {
    condition     = alltrue([for key in keys(var.worker.settings) : can(regex("^(worker|log|operations|traces)\\.", key))])
    error_message = "The settings of workers have keys such as worker.execution.max_running."
  }

  validation {
    condition     = var.worker.volume.size_gib >= 20
    error_message = "The volume of a worker has at least 20 GiB."
  }
}

variable "clients" {
  description = "Who may connect to the gateway: ranges of addresses, and security groups. Nobody may by default."
  type = object({
    cidr_blocks        = optional(list(string), [])
    security_group_ids = optional(list(string), [])
  })
  default = {}

  validation {
    condition     = !contains(var.clients.cidr_blocks, "0.0.0.0/0")
    error_message = "The gateway is not opened to the whole internet. Name the ranges that clients come from."
  }
}

variable "load_balancer" {
  description = <<-EOT
    The load balancer that clients connect to. It is internal unless `subnet_ids` are public ones and `internal` is
    false. `dns` makes a record in a zone of Route 53: a name that the gateway's certificate has.
  EOT
  type = object({
    internal            = optional(bool, true)
    subnet_ids          = optional(list(string))
    deletion_protection = optional(bool, true)
    dns                 = optional(object({ zone_id = string, name = string }))
  })
  default = {}

  validation {
    condition     = var.load_balancer.internal || var.load_balancer.subnet_ids != null
    error_message = "A load balancer that is not internal needs the ids of public subnets."
  }
}

variable "storage" {
  description = <<-EOT
    What COPY may load: a bucket of the cluster's own, and `read`, further places as s3://bucket/path/. Files in the
    bucket are deleted after `expire_after_days`. null = never.
  EOT
  type = object({
    bucket            = optional(bool, true)
    read              = optional(list(string), [])
    expire_after_days = optional(number)
  })
  default = {}

  validation {
    condition     = alltrue([for url in var.storage.read : can(regex("^s3://[a-z0-9.-]{3,63}/(.*/)?$", url))])
    error_message = "A place is given as s3://bucket/path/, with a slash at its end."
  }
}

variable "operations" {
  description = <<-EOT
    The listener of metrics and health on each node, and who may scrape it. The load balancer asks it for the health of
    the gateway. With `token_arn`, the ARN of a secret, /metrics asks for that token.
  EOT
  type = object({
    enabled            = optional(bool, true)
    token_arn          = optional(string)
    cidr_blocks        = optional(list(string), [])
    security_group_ids = optional(list(string), [])
  })
  default = {}

  validation {
    condition     = !contains(var.operations.cidr_blocks, "0.0.0.0/0")
    error_message = "Metrics are not opened to the whole internet. Name the ranges that they are scraped from."
  }
}

variable "traces" {
  description = "Where nodes send traces, by OTLP over gRPC, and which share of statements is traced. null = nowhere. `egress` must allow it."
  type = object({
    endpoint = string
    sample   = optional(number, 0.01)
  })
  default = null

  validation {
    condition     = try(var.traces.sample >= 0 && var.traces.sample <= 1, true)
    error_message = "sample is a share between 0 and 1."
  }
}

variable "egress" {
  description = "What machines may connect to outside of the cluster, by a description: HTTPS, unless more is needed."
  type = map(object({
    cidr_ipv4 = string
    port      = number
  }))
  default = {
    "HTTPS: AWS, the package, files to load" = { cidr_ipv4 = "0.0.0.0/0", port = 443 }
  }
}

variable "kms_key_arn" {
  description = "The key that encrypts the volumes, the bucket and the secrets. null = keys of AWS."
  type        = string
  default     = null
}

variable "backup" {
  description = "Daily snapshots of all data volumes, and how many of each are kept."
  type = object({
    enabled = optional(bool, true)
    kept    = optional(number, 7)
  })
  default = {}
}

variable "restore" {
  description = "Snapshots that data volumes begin with, by the names of workers, and `gateway`. A volume is made anew when its snapshot changes."
  type        = map(string)
  default     = {}
}

variable "termination_protection" {
  description = "Whether machines can be ended only after this was set to false and applied. Replacing a node ends its machine."
  type        = bool
  default     = false
}

variable "tags" {
  description = "Tags of all resources."
  type        = map(string)
  default     = {}
}
