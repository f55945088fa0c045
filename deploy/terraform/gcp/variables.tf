variable "project" {
  description = "The project that everything is made in."
  type        = string
}

variable "environment" {
  description = "staging or production: part of each name."
  type        = string

  validation {
    condition     = contains(["staging", "production"], var.environment)
    error_message = "environment must be staging or production."
  }
}

variable "region" {
  description = "The region. The free tier covers us-west1, us-central1 and us-east1."
  type        = string
  default     = "us-central1"
}

variable "zone" {
  description = "The zone of the machine and its disk."
  type        = string
  default     = "us-central1-a"
}

variable "machine_type" {
  description = "e2-micro is in the free tier: two shared vCPUs that add up to a quarter of one, and 1 GB."
  type        = string
  default     = "e2-micro"
}

variable "disk_gb" {
  description = "The size of the disk for messages. The free tier covers 30 GB with the disk of the system."
  type        = number
  default     = 15

  validation {
    condition     = var.disk_gb >= 10
    error_message = "disk_gb must be at least 10."
  }
}

variable "image" {
  description = "The image to run, with its tag."
  type        = string
}

variable "hosts" {
  description = "The names that clients reach the server by. The first one gets the certificate."
  type        = list(string)

  validation {
    condition     = length(var.hosts) > 0
    error_message = "hosts must name at least one host."
  }
}

variable "allowed_ranges" {
  description = "Who may reach the port for HTTPS."
  type        = list(string)
  default     = ["0.0.0.0/0"]
}

variable "memory_limit_mb" {
  description = "How much memory the container may take."
  type        = number
  default     = 512
}

variable "github_repository" {
  description = "OWNER/NAME of the repository whose workflows may deploy, without a key of its own; empty for none."
  type        = string
  default     = ""
}
