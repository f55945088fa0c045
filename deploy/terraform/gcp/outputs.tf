output "address" {
  description = "The address of the machine. Point the names in `hosts` at it."
  value       = google_compute_address.penstock.address
}

output "url" {
  description = "Where clients reach Penstock, once its first name points at the address."
  value       = "https://${var.hosts[0]}"
}

output "admin_key_secret" {
  description = "Where the administrator's key has to be entered before the first start."
  value       = google_secret_manager_secret.admin_key.secret_id
}

output "workload_identity_provider" {
  description = "What the workflow that deploys names as its provider."
  value       = one(google_iam_workload_identity_pool_provider.github[*].name)
}
