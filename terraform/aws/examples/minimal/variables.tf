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
