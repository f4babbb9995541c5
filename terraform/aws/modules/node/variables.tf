variable "name" {
  description = "The name of the machine, such as volary-worker-1."
  type        = string
}

variable "subnet_id" {
  description = "The private subnet that the machine is in."
  type        = string
}

variable "zone" {
  description = "The availability zone of the subnet."
  type        = string
}

variable "security_group_ids" {
  description = "The security groups of the machine."
  type        = list(string)
}

variable "instance_profile" {
  description = "The instance profile that lets the machine read its secrets."
  type        = string
}

variable "instance_type" {
  description = "The type of the machine."
  type        = string
}

variable "image_id" {
  description = "The image that the machine starts from when it is made. A new image changes no machine that runs."
  type        = string
}

variable "volume" {
  description = "The data volume. With `snapshot_id`, it begins with the content of a snapshot."
  type = object({
    size_gib       = number
    iops           = number
    throughput_mib = number
    snapshot_id    = optional(string)
  })
}

variable "kms_key_arn" {
  description = "The key that encrypts the volumes. null = the account's key of EBS."
  type        = string
  default     = null
}

variable "termination_protection" {
  description = "Whether the machine can be ended only after this was set to false."
  type        = bool
  default     = false
}

variable "bootstrap" {
  description = "What the machine is: the arguments of the module bootstrap. A node without an address gets its machine's."
  type = object({
    role    = string
    port    = number
    gateway = optional(string)
    tls = object({
      node_name                   = string
      client_authorities          = bool
      require_client_certificates = bool
    })
    operations  = optional(object({ listen = string, token = bool }))
    traces      = optional(object({ endpoint = string, sample = number }))
    settings    = any
    environment = map(string)
    secrets = object({
      region    = string
      variables = map(string)
      files     = map(string)
    })
    package = object({ url = string, sha256 = string })
  })
}

variable "tags" {
  description = "Tags of everything that belongs to the machine."
  type        = map(string)
  default     = {}
}
