variable "name" {
  description = "What the names of the role and its instance profile begin with."
  type        = string
}

variable "secret_arns" {
  description = "The secrets that the machines read. They are in one region."
  type        = list(string)
}

variable "kms_key_arn" {
  description = "The key that the secrets and the files to load are encrypted with. null = a key of AWS, which needs no right."
  type        = string
  default     = null
}

variable "objects" {
  description = "What the machines read in S3, as s3://bucket/path. What ends with a slash stands for everything below it."
  type        = list(string)
  default     = []
}

variable "tags" {
  description = "Tags of the role."
  type        = map(string)
  default     = {}
}
