"""Training by likelihood-ratio estimates beside backpropagation: three complete experiments.

    python -m asv_bench.likelihood_ratio mnist
    python -m asv_bench.likelihood_ratio agnews --methods bp lr-l --seeds 1 --backend openmp
    python -m asv_bench.likelihood_ratio cora --backend cuda --precision tf32
    python -m asv_bench.likelihood_ratio speed --backend cuda
    python -m asv_bench.likelihood_ratio copies
    python -m asv_bench.likelihood_ratio all --backend cuda --out results

A perceptron on MNIST, an LSTM on AG-News and a graph convolution network on Cora, each trained with
exact gradients and with estimates of `adarray.estimators`, from the same weights and batches. The
networks are plain NumPy code (`models`). The environment variable ADARRAY_DATA names a folder with
the data sets (`data`); without it small generated data take their place.
"""
