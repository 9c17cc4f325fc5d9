"""These numbers of stochastic MAC were tuned, or set by judgement: no formula says what they should be.

The formulas stand where they are used (methods/stochastic, plan/directions.py) and read these numbers as `tuned.NAME`.
Numbers that only share work among ranks, which change no result, stay with that work.

Each number has a comment: what it is; "Chosen on": the nets, data and seeds; "Half" and "Double": what these do.
"not recorded" where neither the logs (log/) nor the history of commits says so.  Errors are E1 per point, training
/ validation.  Nets and data: "USPS" is run/usps_fast.toml, "large" run/large_fast.toml, "tables" are small public ones
(log/few_points.md), "shapes" the nets of log/shapes.md; one run of seed 0 unless seeds are named.
docs/algorithms/constants.md is made of this file: python run/pages/constants_page.py.
"""

from __future__ import annotations

# --- steps ---

# A step takes this share of the minimum of the Gauss-Newton model along its direction.
# Chosen on: USPS, 20 epochs; kept on large, and on USPS with seeds 0, 1, 2 (log/stochastic.md, minibatches.md).
# Half: not recorded; 0.4: E1 = 2 after 15 epochs instead of 16.5, but validation there 3.02 instead of 2.90.
# Double: not recorded; 0.85 on large after two epochs: 2.582 / 2.770 instead of 2.551 / 2.745.
STRIDE = 0.7

# The share of the last step that a step takes (momentum).
# Chosen on: USPS, 20 epochs (log/stochastic.md).
# Half: not recorded.
# Double: not recorded; 0.8 with a stride of 0.4: E1 = 2 after 16 epochs instead of 16.5, validation 2.90.
MOMENTUM = 0.6

# The first momentum of an autoencoder of dense layers, whose Gauss-Newton model is better than that of other nets.
# Chosen on: USPS with growing minibatches, seeds 0 and 1; large (log/minibatches.md).
# Half: not recorded; 0.6 on USPS: E1 = 2 after 16.25 epochs instead of 16.5, validation 2.953 instead of 2.914.
# Double: not recorded; 0.8 from the start on large: E1 = 3 after 25.9 s instead of 20.1 s.
MOMENTUM_DENSE_AUTOENCODER = 0.7

# The same once minibatches have twice their first size.
# Chosen on: USPS, seeds 0, 1, 2; large (log/minibatches.md).
# Half: not recorded.
# Double: not recorded; 0.85 on USPS: E1 = 2 after 71 to 72 quarters of an epoch instead of 68 to 71, validation 2.94.
MOMENTUM_GROWN = 0.82

# Every MEASURED-th minibatch measures the length of a step.
# Chosen on: USPS (log/stochastic.md).
# Half: not recorded.
# Double: not recorded; every fifth: 4 % fewer seconds, but E1 3 % higher with tanh and on digits.
MEASURED = 3

# --- average of the weights ---

# Minibatches that an average of the weights remembers at least.
# Chosen on: USPS with growing minibatches, seeds 0 and 1 (log/minibatches.md).
# Half: not recorded; 10: E1 = 2 after 16 and 15 epochs instead of 16 and 15.25, validation 2.92 either way.
# Double: not recorded; 20: 16.25 and 16 epochs, validation 2.91; 40 on large: as half of an epoch.
AVERAGE_LEAST = 14

# The first averages are over about the AVERAGE_WINDOW-th part of all steps.
# Chosen on, half, double: not recorded.
AVERAGE_WINDOW = 8.0

# --- ridge ---

# The first ridge times the number of points, for each column of the inputs.  Since commit d2efce03.
# Chosen on, half, double: not recorded.
RIDGE_SHARE = 0.5

# The first ridge times the number of points is at most this: the prior of a weight that is worth this number of points.
# Chosen on: not recorded (commit d2efce03).
# Half, double: not recorded.
RIDGE_PRIOR = 10.0

# The factor of the ridge from epoch to epoch.
# Chosen on: tables, splits 100 to 114 (log/few_points.md).
# Half: not recorded; 0.95, half of the fall: 0.99 of the errors on seven tables, no gain on eight others; 1: 1.02.
# Double: not recorded.
RIDGE_FALL = 0.9

# --- damping ---

# The first damping of an autoencoder, for activations with a slope of 1.
# Chosen on: USPS with sigmoids, tanh and rectifiers, digits (log/stochastic.md).
# Half: not recorded; 0.0005 with rectifiers: 2.366, 3.547 after 16 epochs instead of 2.337, 3.362 with 0.002.
# Double: not recorded; 0.01 with tanh: 2.310, 2.997 instead of 2.298, 3.052 with 0.005.
DAMPING_AUTOENCODER = 8e-3

# The same of an autoencoder of dense layers.
# Chosen on: USPS, 30 epochs (log/stochastic.md, "Damping in eigenvectors").
# Half: not recorded.
# Double: times 2 and 4 with eigenvectors made twice as often: 1.823 / 2.793 and 1.841 / 2.778 instead of 1.827 / 2.845.
DAMPING_DENSE_AUTOENCODER = 1.6e-2

# The same of a regression.  A minibatch of few targets, and labels most of all, is fitted too well by a step with
# little damping: the next ones undo it, the iterate is far worse than its average, and rectifiers die one by one.
# Chosen on: not recorded; it was 0.008 (log/bits.md).
# Half: not recorded.
# Double: not recorded; three times, on tables: no change of the errors (log/few_points.md).
DAMPING_NUMBERS = 0.1

# The same of labels.
# Chosen on: not recorded; it was 0.02 (log/bits.md).
# Half: not recorded.
# Double: not recorded; three times, on tables: no change of the errors (log/few_points.md).
DAMPING_LABELS = 0.3

# Labels in minibatches of fewer points than this are damped by as much more, since they are noisier.
# Chosen on: small sets with labels, 11 % fewer wrong (commit 6cbf1ac4).
# Half, double: not recorded.
LABELS_ENOUGH = 400.0

# They are damped at most this many times more.
# Chosen on: small sets with labels (commit 6cbf1ac4).
# Half, double: not recorded.
LABELS_NOISIEST = 10.0

# The share of the first damping that remains at least.
# Chosen on: not recorded; checked on large (log/minibatches.md).
# Half: not recorded; 0.08 on large after two epochs: 2.641 / 2.857 instead of 2.593 / 2.782.
# Double: 0.4 on large after an epoch: 3.077 / 3.235 instead of 3.074 / 3.245.
DAMPING_SETTLED = 0.2

# The damping changes by this factor for each minibatch since the last look at its success.
# Chosen on: not recorded; Martens and Grosse (2015) have 0.95.
# Half, double: not recorded.
DAMPING_CHANGE = 0.9

# The damping falls where the decrease is more than this share of the predicted one.
# Chosen on: not recorded; the usual rule of Levenberg and Marquardt.
# Half, double: not recorded.
DECREASE_GOOD = 0.75

# The damping grows where the decrease is less than this share of the predicted one.
# Chosen on: not recorded; the usual rule of Levenberg and Marquardt.
# Half, double: not recorded.
DECREASE_POOR = 0.25

# Every ADAPTED-th minibatch compares the decrease with the predicted one.
# Chosen on, half, double: not recorded.
ADAPTED = 10

# The damping grows to this at most, a bound that ends no run.
# Chosen on, half, double: not recorded.
DAMPING_MOST = 1e6

# Below this mean loss of labels a step's length is less damped too: curvature falls with the loss, and damping that
# stays would shorten steps.  Minibatches then differ by the few points that are not learnt, and so do their lengths.
# Chosen on: USPS and digits with labels, five nets, six seeds each (log/shapes.md, "Labels that are learnt").
# Half: not recorded.
# Double: not recorded; 0.05 and 0.1: the training error of two runs of fifteen rose.
LEARNT = 0.02

# The least share of a length's damping that remains once labels are learnt.
# Chosen on: USPS and digits with labels, seeds 0, 1, 2 (log/stochastic.md).
# Half: not recorded; none at all, with an earlier rule: the loss rose once by a hundred times.
# Double: not recorded.
LEARNT_LEAST = 1e-5

# q of the damping in eigenvectors falls to this.
# Chosen on: USPS, 30 epochs (log/stochastic.md, "Damping in eigenvectors").
# Half: not recorded; 0, with rectifiers: units were lost, 3.50 / 4.04 after five epochs instead of 2.74 / 3.45.
# Double: not recorded; 0.25, without a fall: 1.904 / 2.850 instead of 1.880 / 2.831.
CROSS_LEAST = 0.1

# The steps after which q has fallen to a half.
# Chosen on: USPS; without a fall 3.266 / 3.692 after an epoch instead of 3.165 / 3.610 (log/stochastic.md).
# Half, double: not recorded.
CROSS_FALLING = 10.0

# --- steps that go wrong ---

# A loss above this many times its running mean tells of a step gone wrong.
# Chosen on, half, double: not recorded.
SURGE = 3.0

# It tells so only where it is also this number of standard errors above it.
# Chosen on, half, double: not recorded.
SURGE_ERRORS = 3.0

# The share of a new loss in its running mean.
# Chosen on, half, double: not recorded.
LEVEL_SHARE = 0.1

# Weights are lost whose validation error is this many times that of the best ones, if they train worse than these too.
# Chosen on: rectifiers on inputs with heavy tails (commits 1b1c988f, d544edc9).
# Half, double: not recorded.
LOST = 10.0

# The damping grows by this factor after weights that were lost, or a step that was taken back.  Since commit 1b1c988f.
# Chosen on, half, double: not recorded.
DAMPING_RAISED = 10.0

# --- curvature ---

# The share of running Grams that is left when a minibatch renews them.
# Chosen on: USPS, 20 epochs (log/stochastic.md).
# Half: not recorded.
# Double: 0.95, 20 renewals instead of 10: E1 = 2 after 16.5 epochs instead of 16, validation 2.895 instead of 2.877.
GRAM_MEMORY = 0.9

# Every NOTED-th minibatch renews Grams.
# Chosen on, half, double: not recorded.
NOTED = 2

# Points of each part that give Grams and metrics, and in autoencoders without a ridge the lengths of steps.
# Chosen on: USPS, 20 epochs (log/stochastic.md).
# Half: not recorded.
# Double: 125 points for lengths: E1 = 2 after 16.5 epochs instead of 16.75, validation 2.895 instead of 2.884.
PROBED = 64

# Each of this number of first minibatches has inverses of its own.
# Chosen on, half, double: not recorded.
FRESH = 3

# Among the first EARLY minibatches, metrics and inverses serve this many.
# Chosen on: USPS, 20 epochs (log/stochastic.md).
# Half: not recorded; each minibatch its own: no gain.
# Double: 20 from the first minibatch on: E1 = 2 after 16.75 epochs instead of 16.5.
REMADE = 10

# Among later minibatches metrics and inverses serve this many, a multiple of REMADE; eigenvectors from the start.
# Chosen on: USPS, 20 epochs (log/stochastic.md).
# Half: 10: 1.823 / 2.793 instead of 1.827 / 2.845 after 30 epochs with twice the damping.
# Double: 40: 1.833 / 2.856 instead of 1.827 / 2.845.
REMADE_LATER = 20

# Minibatches in which inverses are made more often.
# Chosen on: USPS, 20 epochs (log/stochastic.md).
# Half, double: not recorded.
EARLY = 100

# Passes of a minibatch through a layer and back that turning its slope into eigenvectors and back may cost at most.
# Chosen on, half, double: not recorded.
SPECTRAL_TURNS = 2.0

# A Gram or metric of at least this many columns is inverted in its leading eigenvectors.
# Chosen on: labels with 784-500-10 and a regression with two layers of 800 (log/stochastic.md).
# Half: not recorded; 250 columns and a third, on USPS: E1 = 2 after 16 epochs instead of 15.25.
# Double: not recorded; never, on labels: 0.0071 / 0.1126 in 24.0 s instead of 0.0073 / 0.1108 in 18.5 s.
LOW_RANK_WIDE = 384

# Such an inverse has one eigenvector for this number of columns.
# Chosen on: labels with 784-500-10 and a regression with two layers of 800 (log/stochastic.md).
# Half, double: not recorded.
LOW_RANK_SHARE = 8

# Products with a matrix that find its eigenvectors from random ones; known ones of before are renewed by one.
# Chosen on: not recorded (commit 6fc15ef6).
# Half, double: not recorded.
PRODUCTS_COLD = 4

# An inverse is applied to a gradient's factors, to save seconds, where they have fewer rows than this share of it.
# Chosen on, half, double: not recorded.
FACTORS_FEWER = 0.75

# --- minibatches ---

# Points of a minibatch of few points.
# Chosen on: tables, splits 100 to 114 (log/few_points.md).
# Half: 16: 1.18 of the errors, since one table loses its weights.
# Double: 64: 0.99 on seven tables, 1.04 on the sets below 1,200 points.
BATCH_LEAST = 32

# The first epochs of numbers have at least this many minibatches, unless these would be smaller than BATCH_LEAST.
# Chosen on: USPS (log/minibatches.md).
# Half: 10, 500 points on USPS: E1 = 2 after 17.25 epochs instead of 15.25, validation 2.991 instead of 2.894.
# Double: 40, 125 points on USPS: the same seconds.
EPOCH_LEAST = 20

# The same of labels, which need fewer steps.  Since commit 8bda1ea2.
# Chosen on, half, double: not recorded.
EPOCH_LEAST_LABELS = 10

# An epoch keeps this many minibatches, however much they grow, unless these would be smaller than BATCH_LEAST.
# Chosen on: USPS, seeds 0 and 1 (log/minibatches.md).
# Half: not recorded; 4: E1 = 2 after 69 to 72 quarters of an epoch instead of 68 to 71, validation alike.
# Double: 10: 2.19 to 2.39 s to E1 = 2 instead of 1.88 to 2.14.
EPOCH_GROWN = 5

# Points that minibatches of other nets than autoencoders grow to, of labels twice as many; or EPOCH_LEAST stay.
# Chosen on: 23 sets, splits 0 to 5, 21 tables (log/minibatches.md).
# Half: not recorded; 32: errors of up to 1.14 times as much on tables of 250 to 800 rows.
# Double: swiss roll 0.96 of the errors without this limit instead of 0.84, correlated 0.95 instead of 0.79.
GROWN_FEW = 128

# Epochs of no lower validation error before an autoencoder's minibatches are twice the first at most, and grow again.
# Chosen on: digits, seeds 0 and 1 (log/minibatches.md).
# Half: not recorded; (5, 5): 0.360, 0.365 at best instead of 0.347, 0.346.
# Double: not recorded; never: 0.380, 0.374.
STALLED = (5, 20)

# --- steps of all points ---

# The first ridge of an autoencoder times the number of points.
# Chosen on: USPS (run/usps_all.toml), 32 steps.
# Half: not recorded; a sixth, without a fall: 2.025 / 2.965 instead of 2.088 / 2.866; none: 2.089 / 3.287 after 24.
# Double: not recorded; a third, without a fall: 2.111 / 2.888.
RIDGE_WHOLE = 1.5

# The factor of that ridge from step to step.
# Chosen on: USPS (run/usps_all.toml).
# Half, double: not recorded.
RIDGE_FALL_WHOLE = 0.95

# Points of each part that give Grams and metrics.
# Chosen on: USPS (run/usps_all.toml).
# Half: not recorded; 100, inverses for two steps, after 24 steps: 2.301 / 2.969 in 7.9 s, not 2.215 / 2.927 in 9.2 s.
# Double: not recorded.
PROBED_WHOLE = 1000

# A step of all points changes the damping as much as this number of minibatches would.
# Chosen on: not recorded; 0.9^4 is about the 2/3 of Levenberg and Marquardt.
# Half, double: not recorded.
ADAPTED_WHOLE = 4

# A step is halved at most this many times, until it lowers the objective.
# Chosen on, half, double: not recorded.
HALVINGS_WHOLE = 8

# CG begins at this share of the last step (Martens, 2010).
# Chosen on, half, double: not recorded.
CARRIED_ON = 0.95

# CG ends once the preconditioned residual has fallen to this share.
# Chosen on, half, double: not recorded.
CG_TOLERANCE = 0.05

# Steps with which full MAC ends go on for this number without a noticeable fall of the validation error.
# Chosen on: digits (run/digits_mac.toml), by seconds.
# Half, double: not recorded.
FINISH_PATIENCE = 5

# --- start ---

# Points of the fits of a start.  Since commit ca0da5fe.
# Chosen on, half, double: not recorded.
START_POINTS = 4000

# Weights that are shared over P positions are fitted to one point in P, at least to one in this number.
# Chosen on, half, double: not recorded.
START_APART = 16

# The ridge of the fits.
# Chosen on, half, double: not recorded.
START_RIDGE = 1.0

# The range of random weights times sqrt(fan-in) before an activation whose slope at 0 is 1/4: wide.
# Chosen on: USPS (log/stochastic.md).
# Half, double: not recorded.
START_RANGES = {"sigmoid": 6.0}

# The same before other activations: about Glorot and Bengio's.
# Chosen on: not recorded; Glorot and Bengio (2010).
# Half, double: not recorded.
START_RANGE = 1.7

# The same of tied layers: wider ones make the outputs of the decoder many times too large.
# Chosen on, half, double: not recorded.
START_RANGE_TIED = 1.0

# The scale s of an activation's argument, since tanh(x) = 2 sigmoid(2 x) - 1.  The first principal component of a code
# has this deviation, where the activation is still nearly linear.
# Chosen on, half, double: not recorded.
START_SCALES = {"sigmoid": 1.0}

# The same of other activations.
# Chosen on, half, double: not recorded.
START_SCALE = 0.5

# The deviation of pre-activations that carry components, over s: larger ones are distorted layer after layer.
# Chosen on: USPS, and twelve layers of 100 units (commit ca0da5fe).
# Half, double: not recorded.
CARRIED = 0.6

# Of more hidden layers in a row than this, layers carry components for labels and numbers too, and have no ridge.
# Chosen on: USPS labels by layers of 32 units, 20 epochs (log/shapes.md).
# Half: 1; with two layers of sigmoids 4.46 per cent wrong instead of 4.44.
# Double: not recorded; random layers: four of sigmoids 16.3 per cent wrong instead of 4.0, of rectifiers 6.1 of 4.5.
PASSED = 3

# With more hidden layers than this their number over DEEP divides the first damping, and its root the deviation.
# Random weights of more layers than this, all added to skips, are divided by their number.
# Chosen on: USPS labels by 12 and 128 layers of 32 sigmoids (log/shapes.md).
# Half, double: not recorded; 1 with twelve layers: 5.28 per cent wrong instead of 4.66.
DEEP = 12

# The deviation, over s, of what the points give to the pre-activations of wide layers.
# Chosen on: USPS (commit ca0da5fe).
# Half, double: not recorded.
SPREAD = 1.0

# The same of the random biases.
# Chosen on: USPS (commit ca0da5fe).
# Half, double: not recorded.
SPREAD_BIASES = 1.5

# The carrying units of these activations are shifted, so that most points lie on the side of slope 1.
# Chosen on: not recorded (commit ca0da5fe).
# Half, double: not recorded.
ONE_SIDED = frozenset({"relu", "leaky_relu"})

# They are shifted by this number of deviations.  Since commit ca0da5fe.
# Chosen on, half, double: not recorded.
SHIFT = 2.0
