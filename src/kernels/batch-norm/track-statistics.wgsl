// Moves running mean and (unbiased) variance towards the batch's and counts the batch; with fewer than two values all stay as they are.
// mean, variance, running_mean, running_variance: [C]   count: [1 value]   batches: i32 [1 value]   share: what went in of the batch
// One workgroup: all of it reads how many batches there were before the first invocation counts one more.

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) local: u32) {
  let n = count[0];
  let before = batches[0];
  storageBarrier();
  if (n < 2.0) {
    if (local == 0u) { share[0] = 0.0; }
    return;
  }
  let part = part_of(before);
  for (var c = local; c < C; c += 64u) {
    running_mean[c] = (1.0 - part) * running_mean[c] + part * mean[c];
    let unbiased = variance[c] * (n / (n - 1.0));
    running_variance[c] = (1.0 - part) * running_variance[c] + part * unbiased;
  }
  if (local == 0u) {
    batches[0] = before + 1;
    share[0] = part;
  }
}
