variable "name_prefix" {
  description = "What the name of the bucket begins with."
  type        = string
}

variable "kms_key_arn" {
  description = "The key that encrypts the objects. null = keys of S3."
  type        = string
  default     = null
}

variable "expire_after_days" {
  description = "After how many days a file is deleted. null = never."
  type        = number
  default     = null
}

variable "tags" {
  description = "Tags of the bucket."
  type        = map(string)
  default     = {}
}
