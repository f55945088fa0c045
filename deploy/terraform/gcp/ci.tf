# Workflows of the repository prove who they are with a token of GitHub: there is no key to leak or to rotate.

resource "google_iam_workload_identity_pool" "github" {
  count                     = var.github_repository == "" ? 0 : 1
  workload_identity_pool_id = "${local.name}-github"
}

resource "google_iam_workload_identity_pool_provider" "github" {
  count                              = var.github_repository == "" ? 0 : 1
  workload_identity_pool_id          = google_iam_workload_identity_pool.github[0].workload_identity_pool_id
  workload_identity_pool_provider_id = "github"

  attribute_mapping = {
    "google.subject"       = "assertion.sub"
    "attribute.repository" = "assertion.repository"
  }
  # Only this repository, and only its environment of the same name, which may ask for an approval.
  attribute_condition = "assertion.repository == '${var.github_repository}' && assertion.sub == 'repo:${var.github_repository}:environment:${var.environment}'"

  oidc {
    issuer_uri = "https://token.actions.githubusercontent.com"
  }
}

resource "google_service_account" "deployer" {
  count        = var.github_repository == "" ? 0 : 1
  account_id   = "${local.name}-deployer"
  display_name = "Deploys Penstock, ${var.environment}"
}

resource "google_service_account_iam_member" "github" {
  count              = var.github_repository == "" ? 0 : 1
  service_account_id = google_service_account.deployer[0].name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principalSet://iam.googleapis.com/${google_iam_workload_identity_pool.github[0].name}/attribute.repository/${var.github_repository}"
}

resource "google_project_iam_member" "deployer" {
  for_each = var.github_repository == "" ? toset([]) : toset([
    "roles/compute.instanceAdmin.v1",
    "roles/compute.networkAdmin",
    "roles/compute.securityAdmin",
    "roles/iam.serviceAccountUser",
    "roles/secretmanager.admin",
    "roles/storage.objectAdmin",
  ])
  project = var.project
  role    = each.value
  member  = google_service_account.deployer[0].member
}
