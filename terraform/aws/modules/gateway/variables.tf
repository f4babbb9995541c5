variable "name" {
  description = "The name of the cluster."
  type        = string
}

variable "network" {
  description = "The VPC, and its private subnets by their zones."
  type = object({
    vpc_id     = string
    subnet_ids = map(string)
  })
}

variable "egress" {
  description = "What machines may connect to outside of the cluster, by a description."
  type = map(object({
    cidr_ipv4 = string
    port      = number
  }))
}

variable "image_id" {
  description = "The image of new machines."
  type        = string
}

variable "kms_key_arn" {
  description = "The key that encrypts volumes, secrets and files. null = keys of AWS."
  type        = string
}

variable "termination_protection" {
  description = "Whether machines can be ended only after this was set to false."
  type        = bool
}

variable "operations" {
  description = "The port of metrics and health, whether /metrics asks for a token, and who may connect. null = none."
  type = object({
    port               = number
    token              = bool
    cidr_blocks        = list(string)
    security_group_ids = list(string)
  })
}

variable "bootstrap" {
  description = "What all machines of the cluster are given: see the module node."
  type = object({
    tls = object({
      node_name                   = string
      client_authorities          = bool
      require_client_certificates = bool
    })
    traces      = optional(object({ endpoint = string, sample = number }))
    environment = map(string)
    package     = object({ url = string, sha256 = string })
  })
}

variable "secrets" {
  description = "The secrets of these machines: their region, and their ARNs by environment variables and by files."
  type = object({
    region    = string
    variables = map(string)
    files     = map(string)
  })
}

variable "objects" {
  description = "What the machines may read in S3, as s3://bucket/path."
  type        = list(string)
}

variable "settings" {
  description = "Further settings of the nodes, with dotted keys."
  type        = any
}

variable "tags" {
  description = "Tags of all resources."
  type        = map(string)
}

variable "gateway" {
  description = "The machine of the gateway, and its data volume, which holds the catalog and what queries spill."
  type = object({
    zone          = string
    instance_type = string
    volume = object({
      size_gib       = number
      iops           = number
      throughput_mib = number
      snapshot_id    = optional(string)
    })
  })
}

variable "port" {
  description = "The port of the gateway."
  type        = number
}

variable "load_balancer" {
  description = "The network load balancer: whether it is internal, its subnets, and whether it can be deleted."
  type = object({
    internal            = bool
    subnet_ids          = list(string)
    deletion_protection = bool
  })
}

variable "clients" {
  description = "Who may connect to the gateway."
  type = object({
    cidr_blocks        = list(string)
    security_group_ids = list(string)
  })
}

variable "worker_security_group_id" {
  description = "The security group of the workers."
  type        = string
}

variable "worker_port" {
  description = "The port of the workers."
  type        = number
}
