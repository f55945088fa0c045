# One small machine with Penstock in a container, TLS in front of it, and a disk that outlives the machine.

locals {
  name   = "penstock-${var.environment}"
  labels = { app = "penstock", environment = var.environment }
}

resource "google_service_account" "penstock" {
  account_id   = local.name
  display_name = "Penstock, ${var.environment}"
}

# The administrator's key. Its value is entered by hand, so that no state file holds it:
#   penstock key generate | gcloud secrets versions add penstock-staging-admin-key --data-file=-
resource "google_secret_manager_secret" "admin_key" {
  secret_id = "${local.name}-admin-key"
  labels    = local.labels

  replication {
    auto {}
  }
}

resource "google_secret_manager_secret_iam_member" "admin_key" {
  secret_id = google_secret_manager_secret.admin_key.id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.penstock.member
}

resource "google_project_iam_member" "logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.penstock.member
}

resource "google_compute_network" "penstock" {
  name                    = local.name
  auto_create_subnetworks = false
}

resource "google_compute_subnetwork" "penstock" {
  name          = local.name
  network       = google_compute_network.penstock.id
  region        = var.region
  ip_cidr_range = "10.20.0.0/28"
}

resource "google_compute_firewall" "https" {
  name          = "${local.name}-https"
  network       = google_compute_network.penstock.id
  source_ranges = var.allowed_ranges
  target_tags   = [local.name]

  allow {
    protocol = "tcp"
    ports    = ["80", "443"]
  }
}

# Shells go through Identity-Aware Proxy: no port for SSH is open to the world.
resource "google_compute_firewall" "ssh" {
  name          = "${local.name}-ssh"
  network       = google_compute_network.penstock.id
  source_ranges = ["35.235.240.0/20"]
  target_tags   = [local.name]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

resource "google_compute_address" "penstock" {
  name   = local.name
  region = var.region
}

resource "google_compute_disk" "data" {
  name   = "${local.name}-data"
  type   = "pd-standard"
  size   = var.disk_gb
  labels = local.labels

  lifecycle {
    prevent_destroy = true
  }
}

resource "google_compute_resource_policy" "daily" {
  name   = "${local.name}-daily"
  region = var.region

  snapshot_schedule_policy {
    schedule {
      daily_schedule {
        days_in_cycle = 1
        start_time    = "03:00"
      }
    }
    retention_policy {
      max_retention_days = 7
    }
  }
}

resource "google_compute_disk_resource_policy_attachment" "daily" {
  name = google_compute_resource_policy.daily.name
  disk = google_compute_disk.data.name
}

resource "google_compute_instance" "penstock" {
  name         = local.name
  machine_type = var.machine_type
  tags         = [local.name]
  labels       = local.labels

  # The machine is nothing but this file and the disk, so it may be made again.
  allow_stopping_for_update = true

  boot_disk {
    initialize_params {
      image = "cos-cloud/cos-stable"
      size  = 10
    }
  }

  attached_disk {
    source      = google_compute_disk.data.id
    device_name = "penstock"
  }

  network_interface {
    subnetwork = google_compute_subnetwork.penstock.id

    access_config {
      nat_ip = google_compute_address.penstock.address
    }
  }

  service_account {
    email  = google_service_account.penstock.email
    scopes = ["cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot = true
  }

  metadata = {
    enable-oslogin = "TRUE"
    user-data = templatefile("${path.module}/cloud-init.yaml", {
      image           = var.image
      hosts           = join(",", var.hosts)
      site            = join(", ", var.hosts)
      secret          = google_secret_manager_secret.admin_key.secret_id
      project         = var.project
      memory_limit_mb = var.memory_limit_mb
    })
  }
}
