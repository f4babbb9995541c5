output "bucket" {
  description = "The name of the bucket."
  value       = aws_s3_bucket.load.id
}

output "arn" {
  description = "The ARN of the bucket."
  value       = aws_s3_bucket.load.arn
}
