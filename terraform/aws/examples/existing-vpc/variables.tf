variable "secrets" {
  description = "The ARNs of the secrets. The README tells how they are made."
  type = object({
    cluster        = string
    authority      = string
    certificate    = string
    key            = string
    admin_password = string
  })
}

variable "package" {
  description = "Where the package is, and its sha256."
  type        = object({ url = string, sha256 = string })
}

variable "network" {
  description = "The VPC, and a private subnet for each zone: { \"eu-central-1a\" = \"subnet-…\" }. They need a way to the Secrets Manager, Systems Manager and S3."
  type = object({
    vpc_id     = string
    subnet_ids = map(string)
  })
}

variable "client_security_group_ids" {
  description = "The security groups of machines that may connect."
  type        = list(string)
  default     = []
}
