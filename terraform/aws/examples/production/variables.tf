variable "secrets" {
  description = "The ARNs of the secrets. The README tells how they are made."
  type = object({
    cluster            = string
    authority          = string
    certificate        = string
    key                = string
    worker_certificate = string
    worker_key         = string
    admin_password     = string
    metrics_token      = string
  })
}

variable "package" {
  description = "Where the package is, and its sha256."
  type        = object({ url = string, sha256 = string })
}

variable "image_id" {
  description = "The image of the machines. A fixed one makes all nodes alike, whenever they are made."
  type        = string
}

variable "kms_key_arn" {
  description = "The key that encrypts volumes, the bucket and secrets."
  type        = string
}

variable "dns" {
  description = "The name of the gateway, which its certificate has, and the hosted zone that gets the record."
  type        = object({ zone_id = string, name = string })
}
