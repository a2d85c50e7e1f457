/** Mixed precision, as torch.amp. */

export { type AutocastOptions, autocast } from '../graph/trace/autocast.ts'
export { GradScaler, type GradScalerOptions, type GradScalerState } from '../optim/grad-scaler.ts'
